# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano trace`: the story of a Job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import cluster_options, reach
from kfp_volcano.cli.output import output_option, print_data

if TYPE_CHECKING:
    from kfp_volcano.volcano.launcher.trace import Entry

__all__ = ["trace"]


@click.command()
@click.argument("job", metavar="[NAMESPACE/]JOB|FOLDER")
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A run's output folder, a report's, or a Job's own on its volume, instead of the cluster.",
)
@output_option("text")
@cluster_options
def trace(job: str, *, folder: Path | None, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Tell the story of a Job: who changed what, when, why, and what training did after it.

    From the Job on the cluster, with the logs and ledgers of its workers where its volume is mounted here; or, while it
    runs and when it is gone, from a folder.

    \b
    Example: kfp-volcano trace vision/resnet-1a2b3c4d
             kfp-volcano trace demo-run
             kfp-volcano trace digits --run runs/2f1c -o json
    """
    from kfp_volcano.volcano.launcher.trace import as_json, trace_recorded  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.trace_told import told  # noqa: PLC0415

    if folder is not None:
        name, entries = trace_recorded(folder, job)
    elif Path(job).is_dir():
        name, entries = trace_recorded(Path(job))
    else:
        name, entries = _on_cluster(job, kubeconfig, context)
    if output != "text":
        print_data({"job": name, "trace": as_json(entries)}, output)
        return
    for line in told(name, entries):
        click.echo(line)


def _on_cluster(job: str, kubeconfig: Path | None, context: str | None) -> tuple[str, list[Entry]]:
    from kfp_volcano.volcano.launcher.reference import JobRef  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.trace import trace_on_cluster  # noqa: PLC0415

    reference = JobRef.parse(job if "/" in job else f"default/{job}")
    return str(reference), trace_on_cluster(reach(kubeconfig, context), reference)
