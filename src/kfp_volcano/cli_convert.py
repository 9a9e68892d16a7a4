"""`kfp-volcano convert`: jobs of other operators to TrainingJobs."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["convert"]

REFUSED = 2


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for NAME.yaml and NAME.report.md."
)
@click.option("--queue", default="default", show_default=True, help="The queue of jobs that name none of Volcano's.")
def convert(files: tuple[Path, ...], output: Path | None, queue: str) -> int:
    """Turn jobs of Kubeflow and of Volcano into TrainingJobs, with a report of what became of each field.

    PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, TrainJob (with its runtime, where that is in the files),
    and Volcano's Job, JobTemplate and CronJob. Without -o the specs go to standard output and the reports to standard
    error.

    \b
    Example: kfp-volcano convert jobs/*.yaml -o converted
    """
    from kfp_volcano.volcano.manifests.convert.conversion import Converted, PassedOver, convert_files  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.convert.writing import Names, report, spec_text  # noqa: PLC0415

    texts = {str(file): _read(file) for file in files}
    refused = None in texts.values()
    names = Names()
    for result in convert_files({file: text for file, text in texts.items() if text is not None}, queue=queue):
        if isinstance(result, PassedOver):
            click.echo(f"passed over: {result}", err=True)
        elif not isinstance(result, Converted):
            refused = True
            click.echo(f"refused: {result}", err=True)
        elif output is None:
            click.echo(f"---\n{spec_text(result)}", nl=False)
            click.echo(report(result), err=True)
        else:
            output.mkdir(parents=True, exist_ok=True)
            name = names.free(result.name)
            (output / f"{name}.yaml").write_text(spec_text(result, f"{name}.report.md"), encoding="utf-8")
            (output / f"{name}.report.md").write_text(report(result, page=True), encoding="utf-8")
            click.echo(f"{output / name}.yaml: {result.kind} of {result.source}", err=True)
    return REFUSED if refused else 0


def _read(file: Path) -> str | None:
    """The text of a file; None where it cannot be read, which is told."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        click.echo(f"refused: {file}: cannot be read: {error}", err=True)
        return None
