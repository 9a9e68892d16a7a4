# SPDX-License-Identifier: Apache-2.0
"""The commands `kfp-volcano pools …`: nodes with shared GPUs, moved between the pools of priorities by use."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.options import cluster_options, reach
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import UnavailableError
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from kfp_volcano.schemas.gpu_pools import GPUPools
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.pools.plan import PoolPlan
    from kfp_volcano.volcano.pools.state import Standing

__all__ = ["pools"]


@click.group()
def pools() -> None:
    """Shared GPUs: a pool of nodes for each priority, between which nodes move by use.

    plan, apply and status look at the cluster of --kubeconfig, else of KFP_VOLCANO_CLUSTER or the usual kubeconfig.

    \b
    See how pools stand:     kfp-volcano pools status pools.yaml
    See what would move:     kfp-volcano pools plan pools.yaml
    Move it, and go on:      kfp-volcano pools apply pools.yaml --watch
    """


file_argument = click.argument("file", type=click.Path(path_type=Path))


@pools.command()
@file_argument
@cluster_options
def plan(file: Path, *, kubeconfig: Path | None, context: str | None) -> None:
    """Print the moves that `apply` would make, each with its reason.

    \b
    Example: kfp-volcano pools plan pools.yaml
    """
    _show(_look(_read(file), reach(kubeconfig, context)))


@pools.command()
@file_argument
@click.option("--dry-run", is_flag=True, help="Print the moves and make none.")
@click.option("--watch", is_flag=True, help="Look again whenever pods have changed, until interrupted.")
@click.option(
    "--every", type=click.FloatRange(min=1), default=60.0, show_default=True, help="With --watch: seconds, at most."
)
@cluster_options
def apply(
    file: Path, *, dry_run: bool, watch: bool, every: float, kubeconfig: Path | None, context: str | None
) -> None:
    """Move nodes to the pools that want them, by their label `kfp-volcano/gpu-pool`.

    No node moves on which a pod shares GPUs.

    \b
    Example: kfp-volcano pools apply pools.yaml --watch
    """
    wanted = _read(file)
    cluster = reach(kubeconfig, context)
    if dry_run:
        _show(_look(wanted, cluster))
        return
    while watch:
        _round(cluster, wanted, every)
    code = _apply(cluster, wanted)
    sys.exit(code)


@pools.command()
@file_argument
@output_option("table")
@cluster_options
def status(file: Path, *, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Print how each pool stands: GPUs between its bounds, use, and pods that find no room.

    \b
    Example: kfp-volcano pools status pools.yaml
    """
    found = _look(_read(file), reach(kubeconfig, context))
    if output != "table":
        print_data({"pools": list(map(_standing, found.standings)), "spare": [n.name for n in found.spare]}, output)
        return
    rows = [("POOL", "GPUS", "BOUNDS", "USE", "WAITING", "NODES"), *map(_row, found.standings)]
    if found.spare:
        rows.append(
            ("(spare)", str(sum(node.gpus for node in found.spare)), "", "", "", ", ".join(n.name for n in found.spare))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if found.moves:
        say(f"note: nodes that would move: {len(found.moves)}; see pools plan")
    else:
        _note(found)


def _standing(standing: Standing) -> dict[str, Any]:
    pool = standing.pool
    return {
        "pool": pool.name,
        "gpus": standing.gpus,
        "min": pool.min,
        "max": pool.max,
        "use": standing.use,
        "waiting": len(standing.unserved),
        "nodes": [node.name for node in standing.nodes],
    }


def _row(standing: Standing) -> tuple[str, ...]:
    pool = standing.pool
    return (
        pool.name,
        str(standing.gpus),
        f"{pool.min}-{pool.max}",
        f"{standing.use:.0%}",
        str(len(standing.unserved)),
        ", ".join(node.name for node in standing.nodes) or "-",
    )


def _round(cluster: Cluster, wanted: GPUPools, every: float) -> None:
    """Make the moves that are due, and wait until there may be others."""
    from kfp_volcano.volcano.launcher.pools import version, wait  # noqa: PLC0415

    try:
        before = version(cluster)
        _apply(cluster, wanted)
        wait(cluster, before, timeout_s=every)
    except UnavailableError as error:
        click.echo(f"error: {error}; trying again in {every:g} s", err=True)
        time.sleep(every)


def _apply(cluster: Cluster, wanted: GPUPools) -> int:
    """Make the moves that are due; the exit code."""
    from kfp_volcano.volcano.launcher.pools import apply as carry_out  # noqa: PLC0415

    found = _look(wanted, cluster)
    applied = carry_out(cluster, found, now=time.time(), tell=lambda move: click.echo(str(move)))
    for move, error in applied.kept:
        click.echo(f"error: {move.node} stays in {move.before or 'no pool'}: {error}", err=True)
    _note(found)
    say(f"nodes moved: {len(applied.done)}")
    return applied.kept[0][1].exit_code if applied.kept else 0


def _look(wanted: GPUPools, cluster: Cluster) -> PoolPlan:
    from kfp_volcano.volcano.launcher.pools import look  # noqa: PLC0415

    return look(cluster, wanted, now=time.time())


def _read(path: Path) -> GPUPools:
    from kfp_volcano.schemas.gpu_pools import gpu_pools  # noqa: PLC0415

    return gpu_pools(read_document(path), source=str(path))


def _show(found: PoolPlan) -> None:
    for number, move in enumerate(found.moves, start=1):
        click.echo(f"{number:>3}. {move}")
    if not found.moves:
        click.echo("nothing to move")
    _note(found)


def _note(found: PoolPlan) -> None:
    when = "after that, " if found.moves else ""
    for sentence in found.unmet:
        say(f"note: {when}{sentence}")
