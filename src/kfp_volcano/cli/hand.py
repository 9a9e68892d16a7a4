# SPDX-License-Identifier: Apache-2.0
"""A person's hand on a Job: `kfp-volcano resize`, `hold` and `release`; `kfp-volcano jobs` shares it."""

from __future__ import annotations

import sys
import time
import uuid
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import (
    cluster_options,
    dry_option,
    job_argument,
    reach,
    reference,
    whoever,
    why_option,
)
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import ConflictError, SpecError
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["ask_and_see_through", "hold", "release", "resize"]

detach_option = click.option("--detach", is_flag=True, help="Ask, and leave it to the run or the autoscaler.")


@click.command()
@job_argument
@click.option("--workers", type=click.IntRange(min=1), required=True, help="The number of workers it is to have.")
@click.option("--for", "lasting", metavar="DURATION", help="Keep the autoscaler from changing it so long: 30m, 2h.")
@why_option
@detach_option
@dry_option
@cluster_options
def resize(
    job: str,
    *,
    workers: int,
    lasting: str | None,
    why: str,
    detach: bool,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Give a Job another number of workers, and see the resize through.

    With --for it has that size until the time is over, whatever the autoscaler would do; without, the autoscaler may
    change it again. Ends with 1 where the resize came to nothing.

    \b
    Example: kfp-volcano resize vision/resnet-1a2b3c4d --workers 6 --for 2h --why "the demo"
    """
    seconds = None if lasting is None else _seconds(lasting)
    cluster, ref = reach(kubeconfig, context, dry_run=dry_run), reference(job)
    if lasting is not None and seconds is not None:
        _hold(cluster, ref, seconds, size=workers, why=why)
        say(f"{ref}: {counted(workers, 'worker')} for {lasting}, whatever the autoscaler would do")
    ask_and_see_through(cluster, ref, workers, why=why, detach=detach or dry_run, held=lasting is not None)


@click.command()
@job_argument
@click.option("--for", "lasting", default="1h", show_default=True, metavar="DURATION", help="E.g. 90s, 30m, 2h.")
@click.option("--at", "size", type=click.IntRange(min=1), help="Have it brought to this many workers first.")
@why_option
@dry_option
@cluster_options
def hold(
    job: str,
    *,
    lasting: str,
    size: int | None,
    why: str,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Keep the autoscaler from resizing a Job for a time.

    \b
    Example: kfp-volcano hold vision/resnet-1a2b3c4d --for 2h --why "measuring"
    """
    seconds, ref = _seconds(lasting), reference(job)
    _hold(reach(kubeconfig, context, dry_run=dry_run), ref, seconds, size=size, why=why)
    if not dry_run:
        click.echo(
            f"{ref}: no automatic resize for {lasting}" + (f", after one to {counted(size, 'worker')}" if size else "")
        )


@click.command()
@job_argument
@dry_option
@cluster_options
def release(job: str, *, dry_run: bool, kubeconfig: Path | None, context: str | None) -> None:
    """End a hold: the autoscaler may resize the Job again.

    \b
    Example: kfp-volcano release vision/resnet-1a2b3c4d
    """
    from kfp_volcano.volcano.launcher.jobs import let_go  # noqa: PLC0415

    ref = reference(job)
    held = let_go(reach(kubeconfig, context, dry_run=dry_run), ref, by=whoever(), now=time.time())
    if not dry_run:
        click.echo(f"{ref}: {'the autoscaler may resize it again' if held else 'was not held'}")


def ask_and_see_through(
    cluster: Cluster, ref: JobRef, workers: int, *, why: str, detach: bool, held: bool = False
) -> None:
    """Ask for a size, and execute the resize unless another does; exits with 1 where it came to nothing.

    Where it is `held` at that size, a resize that is being executed already is seen through, whoever asked for it.
    """
    from kfp_volcano.elastic.autoscaler.execution import execute  # noqa: PLC0415
    from kfp_volcano.schemas.records import Phase  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.jobs import ask_for  # noqa: PLC0415

    holder, request = f"jobs-resize:{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    try:
        if not ask_for(cluster, ref, workers, by=whoever(), why=why, request_id=request, now=time.time()):
            say(f"{ref} has {counted(workers, 'worker')} already")
            return
        say(f"{ref}: asked for {counted(workers, 'worker')}")
    except ConflictError:
        if not held:
            raise
        say(f"{ref} is being resized: after that the autoscaler sees to its {counted(workers, 'worker')}")
    if detach:
        return
    outcome = execute(cluster, ref.namespace, ref.name, holder=holder)
    click.echo(f"{ref}: {outcome.phase.value}: {counted(outcome.to_workers, 'worker')}. {outcome.message}".rstrip())
    sys.exit(0 if outcome.phase is Phase.DONE else 1)


def _hold(cluster: Cluster, ref: JobRef, seconds: float, *, size: int | None, why: str) -> None:
    from kfp_volcano.schemas.records import Hold  # noqa: PLC0415
    from kfp_volcano.volcano.launcher import jobs  # noqa: PLC0415

    jobs.hold(cluster, ref, Hold(until=time.time() + seconds, by=whoever(), override=size, reason=why))


def _seconds(lasting: str) -> float:
    from kfp_volcano.schemas.quantities import duration  # noqa: PLC0415

    try:
        return duration(lasting)
    except ValueError as error:
        raise SpecError(f"{lasting!r} is no duration, such as 90s, 30m or 2h", source="--for") from error
