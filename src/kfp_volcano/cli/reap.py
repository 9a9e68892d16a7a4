# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano reap`: removes Jobs whose pipeline run is over, and what Jobs left behind."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import cluster_options, confirm, reach, yes_option
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.volcano.launcher.reaping import Decision

__all__ = ["reap"]


@click.command()
@click.option("--namespace", metavar="NAME", help="Whose Jobs.")
@click.option("--all-namespaces", is_flag=True, help="Everybody's Jobs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@yes_option
@output_option("text")
@cluster_options
def reap(
    *,
    namespace: str | None,
    all_namespaces: bool,
    dry_run: bool,
    yes: bool,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Remove Jobs whose pipeline run is over, and what Jobs left behind; say why, a line for each.

    A run is over when its Argo Workflow has ended, is gone, or was terminated ten minutes ago. Jobs that no run made,
    and succeeded ones in their time to live, stay. Nothing is removed on doubt.

    \b
    Example: kfp-volcano reap --all-namespaces --dry-run
    """
    from kfp_volcano.volcano.launcher.reaping import reap as look_through  # noqa: PLC0415

    if all_namespaces == (namespace is not None) or namespace == "":  # an unset variable of a script is not everybody
        raise click.UsageError("say one of --namespace NAME and --all-namespaces")
    if not dry_run and not yes:
        confirm(f"remove what is left of runs that are over, {f'in {namespace}' if namespace else 'everywhere'}")
    told: list[Decision] = []

    def tell(decision: Decision) -> None:
        told.append(decision)
        if output == "text":
            click.echo(str(decision))

    try:
        look_through(reach(kubeconfig, context), namespace or "", clock=time.time, dry_run=dry_run, tell=tell)
    finally:
        if output != "text":
            print_data([asdict(decision) for decision in told], output)
    if any(decision.what == "failed" for decision in told):
        sys.exit(ClusterError.exit_code)
