# SPDX-License-Identifier: Apache-2.0
"""The commands `kfp-volcano queues …`: from a QueueTree to the queues of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.options import cluster_options, confirm, reach, yes_option
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.verbosity import say
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from kfp_volcano.schemas.queue_tree import QueueTree
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.manifests.queue_steps import Plan, Step

__all__ = ["queues"]


@click.group()
def queues() -> None:
    """Departments, teams and their shares: from one file to the queues of a cluster.

    plan, apply and diff look at the cluster of --kubeconfig, else of KFP_VOLCANO_CLUSTER or the usual kubeconfig.

    \b
    See what would happen:   kfp-volcano queues plan tree.yaml
    Make it so:              kfp-volcano queues apply tree.yaml
    """


tree_argument = click.argument("tree", type=click.Path(path_type=Path))


@queues.command()
@tree_argument
@output_option("text")
@cluster_options
def plan(tree: Path, *, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Print the steps that `apply` would take, each with its reason.

    \b
    Example: kfp-volcano queues plan tree.yaml
    """
    found = _plan(_read(tree), reach(kubeconfig, context))
    if output != "text":
        print_data([_step(each) for each in found.steps], output)
    else:
        _show(found)


@queues.command()
@tree_argument
@click.option("--dry-run", is_flag=True, help="Print the steps and take none.")
@yes_option
@cluster_options
def apply(tree: Path, *, dry_run: bool, yes: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Bring the tree about, step by step; stops at the first step that is refused.

    Queues that have left the tree are deleted when nothing is in them. Others' queues are not touched.

    \b
    Example: kfp-volcano queues apply tree.yaml --dry-run
    """
    from kfp_volcano.volcano.launcher.queues import apply as carry_out  # noqa: PLC0415

    wanted = _read(tree)
    cluster = reach(kubeconfig, context)
    found = _plan(wanted, cluster)
    if dry_run or not found.steps:
        _show(found)
        return
    _confirm(found, yes=yes)
    applied = carry_out(cluster, found, tell=lambda step: click.echo(str(step)))
    _note(found)
    if applied.refused and applied.error:
        left = len(found.steps) - len(applied.done)
        click.echo(
            f"error: {applied.refused.action} {applied.refused.kind} {applied.refused.name} was refused: "
            f"{applied.error}\n{len(applied.done)} steps are done, {left} are not; apply again goes on from there",
            err=True,
        )
        sys.exit(applied.error.exit_code)
    say(f"{len(applied.done)} steps done")


@queues.command()
@tree_argument
@click.option("--exit-code", is_flag=True, help="Exit with 1 where something differs.")
@cluster_options
def diff(tree: Path, *, exit_code: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Print what differs between the tree and the cluster, field by field.

    \b
    Example: kfp-volcano queues diff tree.yaml --exit-code
    """
    found = _plan(_read(tree), reach(kubeconfig, context))
    for name, changes in found.differences.items():
        click.echo(name)
        for change in changes:
            click.echo(f"  {change}")
    _note(found)
    if exit_code and found.differences:
        sys.exit(1)


@queues.command()
@tree_argument
def render(tree: Path) -> None:
    """Print the Queue and ResourceQuota objects of the tree, as YAML.

    \b
    Example: kfp-volcano queues render tree.yaml | kubectl apply --dry-run=server -f -
    """
    from kfp_volcano.volcano.manifests.queues import manifests  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml  # noqa: PLC0415

    click.echo(manifest_yaml(manifests(_read(tree))), nl=False)


@queues.command("scheduler-config")
@tree_argument
def scheduler_config(tree: Path) -> None:
    """Print the volcano-scheduler.conf that the tree needs, with the reason for each line.

    \b
    Example: kfp-volcano queues scheduler-config tree.yaml > volcano-scheduler.conf
    """
    from kfp_volcano.volcano.manifests import scheduler_config as config  # noqa: PLC0415

    click.echo(config.scheduler_config(_read(tree)), nl=False)


def _read(path: Path) -> QueueTree:
    from kfp_volcano.schemas.queue_validation import queue_tree  # noqa: PLC0415

    return queue_tree(read_document(path), source=str(path))


def _plan(tree: QueueTree, cluster: Cluster) -> Plan:
    from kfp_volcano.volcano.launcher.queues import read  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.queue_plan import plan as plan_of  # noqa: PLC0415

    return plan_of(tree, read(cluster))


def _step(step: Step) -> dict[str, Any]:
    told = {"action": step.action, "kind": step.kind, "name": step.name, "namespace": step.namespace}
    return {**told, "reason": step.reason, "changes": [str(change) for change in step.changes]}


def _show(found: Plan) -> None:
    for number, step in enumerate(found.steps, start=1):
        click.echo(f"{number:>3}. {step}")
        if step.action in {"update", "move"}:
            for change in step.changes:
                click.echo(f"       {change}")
    if not found.steps:
        click.echo(f"nothing to do: the cluster's queues are as the tree {found.tree} says")
    _note(found)


def _note(found: Plan) -> None:
    for sentence in found.kept:
        say(f"note: {sentence}")


def _confirm(found: Plan, *, yes: bool) -> None:
    """Ask before what cannot be undone; where nobody can be asked, `--yes` has to say so."""
    names = ", ".join(f"{step.kind} {step.name}" for step in found.deletions)
    if names and not yes:
        confirm(f"delete {names}")
