# SPDX-License-Identifier: Apache-2.0
"""The commands on pipelines without a backend: `compile`, and on this machine `run` and `demo`."""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import click

from kfp_volcano.cli.backend import pairs
from kfp_volcano.cli.verbosity import console, say

__all__ = ["compile_", "demo", "run"]

pipeline_argument = click.argument("pipeline", type=click.Path(path_type=Path))
pipeline_option = click.option("--pipeline", "name", metavar="NAME", help="Which pipeline, where the file has several.")


@click.command("compile")
@pipeline_argument
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="IR YAML file.")
@pipeline_option
def compile_(pipeline: Path, output: Path, name: str | None) -> None:
    """Compile a pipeline file to KFP's IR, for upload to a backend.

    \b
    Example: kfp-volcano compile pipelines/elastic_training.py -o elastic_training.yaml
    """
    from kfp_volcano.pipelines.running import compile_pipeline  # noqa: PLC0415

    compile_pipeline(pipeline, output, name=name)
    say(f"{output}: compiled")


@click.command()
@pipeline_argument
@click.option("--local", is_flag=True, help="Run on this machine: an embedded cluster with logical GPUs.")
@click.option(
    "--nodes",
    default="2x4",
    show_default=True,
    metavar="NxG[@MEMORY],…",
    help="Logical nodes and the GPUs of each; with a memory (1x2@24Gi) pods share them.",
)
@click.option("--param", "params", multiple=True, callback=pairs, metavar="K=V", help="A pipeline parameter; repeat.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Where report, ledgers, logs and model go."
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="A queue of the embedded cluster; repeat.")
@click.option(
    "--volume", "volumes", multiple=True, callback=pairs, metavar="CLAIM=DIR", help="A folder as a volume claim."
)
@click.option("--run-id", help="Take up an earlier run of that id (with the same --out) from its checkpoint.")
@pipeline_option
def run(
    pipeline: Path,
    *,
    local: bool,
    nodes: str,
    params: dict[str, str],
    out: Path | None,
    queues: tuple[str, ...],
    volumes: dict[str, str],
    run_id: str | None,
    name: str | None,
) -> None:
    """Run a pipeline to its end and show what happens.

    \b
    Example: kfp-volcano run pipelines/elastic_training.py --local --nodes 2x4 --param epochs=20
    """
    from kfp_volcano.pipelines import running  # noqa: PLC0415
    from kfp_volcano.pipelines.local import LocalRun  # noqa: PLC0415

    if not local:
        raise click.UsageError("say --local, or kfp-volcano submit to run it on a KFP backend")
    run_id = run_id or uuid.uuid4().hex[:8]
    values = running.arguments(running.load_pipeline(pipeline, name), params)
    plan = LocalRun(
        path=pipeline,
        name=name,
        values=values,
        out=out or Path("runs") / run_id,
        run_id=run_id,
        nodes=nodes,
        queues=queues or ("default", "research"),
        volumes=volumes,
    )
    _finish(plan)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-run"), show_default=True)
def demo(out: Path) -> None:
    """See it work: a training grows into an idle queue, gives GPUs to a waiting gang, and grows again.

    Takes about four minutes on two cores; the report explains each resize.

    \b
    Example: kfp-volcano demo --out demo-run
    """
    from kfp_volcano.pipelines.demo import demo_run, other_team  # noqa: PLC0415

    _finish(demo_run(out, run_id=uuid.uuid4().hex[:8]), companion=other_team)


def _finish(plan: Any, companion: Any = None) -> None:
    """Run to the end, say where the results are, and exit as the run ended."""
    from kfp_volcano.pipelines.local import run_locally  # noqa: PLC0415

    screen, started = console(), time.time()
    screen.print(f"run {plan.run_id}: starting an embedded cluster of {plan.nodes} GPUs", highlight=False)
    try:
        outcome = run_locally(plan, console=screen, companion=companion)
    except KeyboardInterrupt:
        say("everything this command started has been ended")
        raise
    if outcome.exit_code:
        click.echo(f"error: {outcome.message}", err=True)
    for report in (
        plan.out / "report.html",
        *sorted(plan.out.glob("*/report.html")),
    ):  # of a run's first training first
        if report.exists() and report.stat().st_mtime >= started:
            click.echo(f"report:  {report.resolve()}")
            click.echo(f"figures: {report.with_name('result.json').resolve()}")
            click.echo(f"sizes:   kfp-volcano autoscaler explain {_job_of(report)} --decisions {plan.out}")
    sys.exit(outcome.exit_code)


def _job_of(report: Path) -> str:
    """The Job that a report is of, as namespace/name."""
    return str(json.loads(report.with_name("result.json").read_text(encoding="utf-8"))["job"])
