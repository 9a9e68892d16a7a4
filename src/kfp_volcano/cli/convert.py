# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano convert`: jobs of other operators to TrainingJobs."""

from __future__ import annotations

from pathlib import Path

import click

from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import SpecError
from kfp_volcano.reading import read_text

__all__ = ["convert"]

REFUSED = 2


@click.command()
@click.argument("files", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True)
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
             kubectl get pytorchjobs -o yaml | kfp-volcano convert -
    """
    from kfp_volcano.volcano.manifests.convert.conversion import Converted, PassedOver, convert_files  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.convert.writing import Names, report, spec_text  # noqa: PLC0415

    texts = {str(file): _read(file) for file in files}
    refused = None in texts.values()
    names = Names()
    for result in convert_files({file: text for file, text in texts.items() if text is not None}, queue=queue):
        if isinstance(result, PassedOver):
            say(f"passed over: {result}")
        elif not isinstance(result, Converted):
            refused = True
            say(f"refused: {result}")
        elif output is None:
            click.echo(f"---\n{spec_text(result)}", nl=False)
            say(report(result))
        else:
            name = names.free(result.name)
            _write(output / f"{name}.yaml", spec_text(result, f"{name}.report.md"))
            _write(output / f"{name}.report.md", report(result, page=True))
            say(f"{output / name}.yaml: {result.kind} of {result.source}")
    return REFUSED if refused else 0


def _read(file: Path) -> str | None:
    """The text of a file; None where it cannot be read, which is told."""
    try:
        return read_text(file)
    except SpecError as error:
        say(f"refused: {error}")
        return None


def _write(path: Path, text: str) -> None:
    """Write a file of the output. Raises SpecError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror}", source=str(path)) from error
