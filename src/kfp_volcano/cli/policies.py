# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano autoscaler policies`: are these Policies right, and which queue gets which?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import cluster_options, reach
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.tables import print_table

if TYPE_CHECKING:
    from kfp_volcano.schemas.policy import QueuePolicy

__all__ = ["policies"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Say which Policy this queue gets; repeat.")
@output_option("table")
@cluster_options
def policies(file: Path, *, queues: tuple[str, ...], output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Check the Policies of a file or a folder, and print which queues get which.

    Of the queues named, or of those of the cluster that is named, else the patterns as they are written.

    \b
    Example: kfp-volcano autoscaler policies policies.yaml
             kfp-volcano autoscaler policies policies/ --kubeconfig ~/.kube/config
    """
    from kfp_volcano.elastic.autoscaler.policy_file import read_policies  # noqa: PLC0415

    read = read_policies(file)
    if kubeconfig is not None or context is not None:
        found, _ = reach(kubeconfig, context).list("Queue")
        queues = (*queues, *sorted(str(queue["metadata"]["name"]) for queue in found))
    if queues:
        rows = [(queue, *_row(read.of(queue))) for queue in dict.fromkeys(queues)]
    else:
        rows = [(", ".join(each.queues), *_row(each)) for each in read.each]
    if output != "table":
        print_data([{"queue": queue, "policy": name, "decides": decides} for queue, name, decides in rows], output)
    else:
        print_table(("QUEUE", "POLICY", "DECIDES"), rows)


def _row(spec: QueuePolicy) -> tuple[str, str]:
    """The Policy's name, and what decides by it."""
    arms = ", ".join(f"{arm.name}: {arm.policy}" for arm in spec.arms)
    return spec.name, f"an experiment: {arms}" if arms else spec.policy
