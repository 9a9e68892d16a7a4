# SPDX-License-Identifier: Apache-2.0
"""The commands `kfp-volcano jobs …`: trainings on a cluster, without a pipeline."""

from __future__ import annotations

import signal
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.hand import ask_and_see_through, hold, release
from kfp_volcano.cli.options import (
    cluster_options,
    confirm,
    dry_option,
    job_argument,
    pools_option,
    profiles_option,
    reach,
    reference,
    why_option,
    yes_option,
)
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.tables import age, print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.jobs import JobLine
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["jobs"]


@click.group()
def jobs() -> None:
    """Trainings on a cluster: submit, follow, resize, hold and cancel them.

    They may come from pipelines, or from `jobs submit`. All commands look at the cluster of --kubeconfig, else of
    KFP_VOLCANO_CLUSTER or the usual kubeconfig.

    \b
    Train without a pipeline:    kfp-volcano jobs submit job.yaml
    See what trains:             kfp-volcano jobs list --all-namespaces
    Ask for another size:        kfp-volcano jobs resize vision/resnet-1a2b3c4d 6
    Keep the autoscaler off it:  kfp-volcano jobs hold vision/resnet-1a2b3c4d --for 2h
    """


@jobs.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--run-id", metavar="ID", help="Names the Job; the same again adopts it. By default a new one.")
@click.option("--detach", is_flag=True, help="Create the Job and leave it: the autoscaler resizes it.")
@dry_option
@profiles_option
@pools_option
@cluster_options
def submit(
    spec: Path,
    *,
    run_id: str | None,
    detach: bool,
    dry_run: bool,
    profiles: Path | None,
    pools_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Create the Job of a TrainingJob and follow it to its end, executing resizes on the way.

    Interrupted (Ctrl-C, SIGTERM) it deletes the Job, and with it all that belongs to it. Killed, it leaves the Job to
    train: the same --run-id takes it up again.

    \b
    Example: kfp-volcano jobs submit job.yaml --kubeconfig ~/.kube/config
    """
    from kfp_volcano.platform_files import in_its_pool, resource_profiles  # noqa: PLC0415
    from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.jobs import leave  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.reference import JobRef  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.submit import submit as create  # noqa: PLC0415

    job = training_job(read_document(spec), source=str(spec), profiles=resource_profiles(profiles))
    cluster = reach(kubeconfig, context, dry_run=dry_run)
    run = run_id or uuid.uuid4().hex[:8]
    ready = in_its_pool(job, pools_file)

    def start() -> Manifest:
        created = create(cluster, ready, run_id=run, step="jobs submit", now=time.time())
        if not dry_run:
            say(f"Job {JobRef.of(created)} is in queue {job.queue} (run {run})")
        return created

    if dry_run:
        start()
        return
    if detach:
        ref = JobRef.of(start())
        leave(cluster, ref, holder=f"jobs-submit:{run}", clock=time.time)
        click.echo(str(ref))
        return
    with _cancelling(cluster, start) as created:
        _follow(cluster, JobRef.of(created), holder=f"jobs-submit:{run}")


@jobs.command()
@job_argument
@cluster_options
def follow(job: str, *, kubeconfig: Path | None, context: str | None) -> None:
    """Print what a Job's workers print, how it stands and why it waits, until it ends.

    From the beginning of what the cluster still has of their logs. Only looks on: whoever follows the Job in its run,
    or the autoscaler, goes on executing resizes. Ends with 1 if the training fails.

    \b
    Example: kfp-volcano jobs follow vision/resnet-1a2b3c4d
    """
    cluster, ref = reach(kubeconfig, context), reference(job)
    ref.read(cluster)  # whoever looks on does not wait for a cluster that is not there, nor for a Job
    _follow(cluster, ref, holder=None)


@jobs.command("list")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-A", "--all-namespaces", is_flag=True)
@output_option("table")
@cluster_options
def list_(namespace: str, *, all_namespaces: bool, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """List the trainings: how they stand, how large they are, and why they wait.

    \b
    Example: kfp-volcano jobs list --all-namespaces
    """
    from kfp_volcano.volcano.launcher.jobs import job_lines  # noqa: PLC0415

    cluster, where, now = reach(kubeconfig, context), "" if all_namespaces else namespace, time.time()
    lines = job_lines(cluster, where, now)
    if output != "table":
        print_data([asdict(line) for line in lines], output)
    elif lines:
        _show(lines, now)
    else:
        say(f"no trainings in {'any namespace' if all_namespaces else f'namespace {namespace}'}")


@jobs.command()
@job_argument
@click.argument("workers", type=click.IntRange(min=1))
@why_option
@click.option("--detach", is_flag=True, help="Ask, and leave it to the run or the autoscaler.")
@dry_option
@cluster_options
def resize(
    job: str,
    workers: int,
    *,
    why: str,
    detach: bool,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Ask for another number of workers, and see the resize through.

    The run that follows the Job executes it; where nobody follows it, this command does. The autoscaler may change the
    size again, unless it is held off: kfp-volcano jobs hold.

    \b
    Example: kfp-volcano jobs resize vision/resnet-1a2b3c4d 6 --why "the demo is over"
    """
    cluster = reach(kubeconfig, context, dry_run=dry_run)
    ask_and_see_through(cluster, reference(job), workers, why=why, detach=detach or dry_run)


jobs.add_command(hold)
jobs.add_command(release)


@jobs.command()
@job_argument
@yes_option
@dry_option
@cluster_options
def cancel(job: str, *, yes: bool, dry_run: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Delete a Job, and with it all that belongs to it; waits until its pods are gone.

    A run of a pipeline that follows the Job fails then.

    \b
    Example: kfp-volcano jobs cancel vision/resnet-1a2b3c4d
    """
    cluster, ref = reach(kubeconfig, context, dry_run=dry_run), reference(job)
    found = ref.read(cluster)
    if dry_run:
        cluster.delete("Job", ref.name, ref.namespace)
        return
    if not yes:
        confirm(f"delete Job {ref}, and end its training")
    _cancel(cluster, found)


def _follow(cluster: Cluster, ref: JobRef, *, holder: str | None) -> None:
    """To its end, with all that the workers print. Without a holder this only looks on."""
    from kfp_volcano.volcano.launcher.follow import follow as follow_job  # noqa: PLC0415

    follow_job(cluster, ref, holder=holder, heir="", last=True, clock=time.time, say=click.echo)
    say(f"Job {ref} has succeeded")


@contextmanager
def _cancelling(cluster: Cluster, create: Callable[[], Manifest]) -> Iterator[Manifest]:
    """Create a Job, and delete it when this command is told to stop; told meanwhile, it stops when there is a Job."""
    job: Manifest | None = None
    told = False

    def stop(*_: object) -> None:
        nonlocal told
        if job is not None or told:
            raise KeyboardInterrupt
        told = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        job = create()
        if told:
            stop()
        yield job
    except KeyboardInterrupt:
        if job is None:
            say("the Job may be there all the same: kfp-volcano jobs list")
        else:
            _cancel(cluster, job)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(cluster: Cluster, job: Manifest) -> None:
    from kfp_volcano.volcano.launcher.jobs import cancel as delete  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.reference import JobRef  # noqa: PLC0415

    gone = delete(cluster, job)
    say(f"Job {JobRef.of(job)} is deleted{'' if gone else '; its pods are still ending'}")


def _show(lines: list[JobLine], now: float) -> None:
    rows = (
        (
            line.job,
            line.queue,
            line.state,
            _size(line),
            age(now - line.since),
            "-" if line.step is None else f"{line.step}/{line.total_steps}",
            line.last_resize or "-",
            line.waits or "",
        )
        for line in lines
    )
    print_table(("JOB", "QUEUE", "STATE", "WORKERS", "AGE", "STEP", "LAST RESIZE", "WHY IT WAITS"), rows)


def _size(line: JobLine) -> str:
    size = f"{line.workers}" if len(line.sizes) == 1 else f"{line.workers} of {line.sizes[0]}-{line.sizes[-1]}"
    return size + (" (held)" if line.held_until else "")
