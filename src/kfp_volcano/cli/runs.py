# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano submit`: a pipeline on a KFP backend, followed to its end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.backend import backend_options, pairs
from kfp_volcano.cli.options import dry_option
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import ClusterError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.pipelines.backend.access import Access
    from kfp_volcano.pipelines.backend.runs import Run

__all__ = ["submit"]

INTERRUPTED = 130
ENDING_S = 90.0
"""How long the end of a terminated run is waited for; its exit handler takes half a minute."""


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option("--param", "params", multiple=True, callback=pairs, metavar="K=V", help="A pipeline parameter; repeat.")
@click.option("--experiment", default="Default", show_default=True, metavar="NAME", help="Made if it is not there.")
@click.option("--run-name", metavar="NAME", help="By default the pipeline's name and the time.")
@click.option("--pipeline-name", metavar="NAME", help="What to call the pipeline at the backend; by default as it is.")
@click.option("--service-account", metavar="NAME", help="Of the run's steps; by default the backend's.")
@click.option("--pipeline-root", metavar="URI", help="Where outputs are stored; by default where the backend does.")
@click.option("--no-follow", "--detach", "detach", is_flag=True, help="Start the run and leave it.")
@click.option("--keep", is_flag=True, help="On Ctrl-C stop following, but let the run go on.")
@dry_option
@click.option("--pipeline", "name", metavar="NAME", help="Which pipeline, where the file has several.")
@backend_options
def submit(
    pipeline: Path,
    *,
    params: dict[str, str],
    experiment: str,
    run_name: str | None,
    pipeline_name: str | None,
    service_account: str | None,
    pipeline_root: str | None,
    detach: bool,
    keep: bool,
    dry_run: bool,
    name: str | None,
    access: Access,
) -> None:
    """Run a pipeline on a KFP backend and follow it to its end.

    PIPELINE is a Python file, compiled here, or compiled IR (.yaml). The same content is uploaded once. The run's link
    goes to standard output, what happens to standard error. Ctrl-C (and SIGTERM) terminates the run, and with it the
    trainings that it has begun, unless --keep is said.

    \b
    Ends with 0 if the run has succeeded, 1 if it has failed, 4 if it was terminated,
    3 if the backend cannot be reached or refuses, 130 if interrupted.

    \b
    Example: kfp-volcano submit pipelines/elastic_training.py --host https://kfp.example.org --param epochs=20
    """
    from kfp_volcano.pipelines.client import Client  # noqa: PLC0415
    from kfp_volcano.pipelines.ir import compiled  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.kubernetes.api import Patience  # noqa: PLC0415

    ir = compiled(pipeline, name=name)
    arguments = ir.arguments(params)
    if dry_run:
        click.echo(f"would run pipeline {ir.name} at {access.host or 'the backend of the environment'}")
        for key, value in arguments.items():
            click.echo(f"  {key} = {value}")
        return
    with _stopping() as stop:
        client = Client.of(access, Patience(total_s=60.0, first_s=0.5, sleep=stop.pause))
        try:
            run = client.submit(
                ir,
                params,
                run_name=run_name,
                experiment=experiment,
                pipeline_name=pipeline_name,
                service_account=service_account,
                pipeline_root=pipeline_root,
            )
        except KeyboardInterrupt:
            say("interrupted before the backend said that there is a run: look there")
            sys.exit(INTERRUPTED)
        click.echo(run.url)
        if detach:
            return
        try:
            _follow(run)
        except KeyboardInterrupt:
            if keep:
                say(f"run {run.run_id} goes on")
            else:
                _terminate(run, stop)
            sys.exit(INTERRUPTED)
        except UnavailableError:
            say(f"run {run.run_id} goes on without being followed")
            raise
    assert run.ending is not None  # noqa: S101 - it was followed to its end
    sys.exit(run.ending.exit_code)


def _follow(run: Run) -> None:
    from kfp_volcano.pipelines.backend.runs import Ending  # noqa: PLC0415

    for event in run.follow():
        _say(f"{event.task or 'run'}: {event.state}{f': {event.note}' if event.note else ''}")
    if run.ending is Ending.CANCELED:
        _say("the run was terminated")
    if run.ending is Ending.FAILED:
        for line in run.last_words():
            say(f"  | {line}")
        failed = ", ".join(run.failures()) or "no task says so"
        _say(f"failed: {failed}; all logs: {run.url}, or kubectl logs -l pipeline/runid={run.run_id} -c main")


def _terminate(run: Run, stop: _Stop) -> None:
    """End the run and wait until it has ended; a second Ctrl-C stops the waiting."""
    say(f"terminating run {run.run_id}; Ctrl-C again stops waiting for its end")
    stop.forget()
    try:
        run.terminate()
        deadline = time.monotonic() + ENDING_S
        for event in run.follow():
            _say(f"{event.task or 'run'}: {event.state}")
            if time.monotonic() > deadline:
                break
    except ClusterError as error:
        click.echo(f"error: {error}", err=True)
    except KeyboardInterrupt:
        pass
    if run.ending is None:
        say(f"run {run.run_id} has not ended yet")


def _say(line: str) -> None:
    say(f"{time.strftime('%H:%M:%S')} {line}")


class _Stop:
    """Ctrl-C and SIGTERM, which are minded between two requests: none is left half done. A second one does not wait."""

    def __init__(self) -> None:
        self._came = threading.Event()

    def pause(self, seconds: float) -> None:
        """Wait. Raises KeyboardInterrupt where a signal has come, or comes."""
        if self._came.wait(seconds):
            raise KeyboardInterrupt

    def forget(self) -> None:
        """It has been seen to."""
        self._came.clear()

    def signal(self, *_: Any) -> None:
        """The handler."""
        if self._came.is_set():
            raise KeyboardInterrupt
        self._came.set()


@contextmanager
def _stopping() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop.signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
