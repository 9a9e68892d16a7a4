# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano reap`: removes Jobs whose pipeline run is over, and what Jobs left behind."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli_options import cluster_options, reach
from kfp_volcano.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.volcano.launcher.reaping import Decision

__all__ = ["reap"]


@click.command()
@click.option("--namespace", metavar="NAME", help="Whose Jobs.")
@click.option("--all-namespaces", is_flag=True, help="Everybody's Jobs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options
def reap(
    *,
    namespace: str | None,
    all_namespaces: bool,
    dry_run: bool,
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
    told: list[Decision] = []

    def tell(decision: Decision) -> None:
        told.append(decision)
        if output == "text":
            click.echo(str(decision))

    try:
        look_through(reach(kubeconfig, context), namespace or "", clock=time.time, dry_run=dry_run, tell=tell)
    finally:
        if output == "json":
            click.echo(json.dumps([asdict(decision) for decision in told], indent=2))
    if any(decision.what == "failed" for decision in told):
        sys.exit(ClusterError.exit_code)
