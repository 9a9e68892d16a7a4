# SPDX-License-Identifier: Apache-2.0
"""The command line: `kfp-volcano COMMAND`.

Data goes to standard output, progress and messages to standard error. Exit codes: 0 done, 1 the training failed,
2 wrong use or input, 3 the cluster could not be reached or refused, 4 the run was terminated, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli_autoscaler import autoscaler
from kfp_volcano.cli_backend import pairs
from kfp_volcano.cli_check_script import check_script
from kfp_volcano.cli_convert import convert
from kfp_volcano.cli_doctor import doctor
from kfp_volcano.cli_hand import hold, release, resize
from kfp_volcano.cli_jobs import jobs
from kfp_volcano.cli_options import pools_option, profiles_option
from kfp_volcano.cli_pools import pools
from kfp_volcano.cli_priority import priority
from kfp_volcano.cli_queues import queues
from kfp_volcano.cli_reap import reap
from kfp_volcano.cli_runs import submit
from kfp_volcano.cli_schedules import schedule
from kfp_volcano.cli_search import search
from kfp_volcano.cli_simulate import simulate
from kfp_volcano.cli_top import top
from kfp_volcano.cli_trace import trace
from kfp_volcano.cli_whatif import whatif
from kfp_volcano.errors import KfpVolcanoError, SpecError
from kfp_volcano.reading import read_document
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["main"]

INTERRUPTED = 130


class _Group(click.Group):
    """Errors raised on purpose become a message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.Abort:
            sys.exit(INTERRUPTED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except KfpVolcanoError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kfp-volcano")
def main() -> None:
    """Elastic, gang-scheduled training from Kubeflow Pipelines on Volcano.

    \b
    See it work on this machine:     kfp-volcano demo --out demo-run
    Check and render a spec:         kfp-volcano validate job.yaml
                                     kfp-volcano render job.yaml
    Run a pipeline on this machine:  kfp-volcano run pipeline.py --local
    Run it on a KFP backend:         kfp-volcano submit pipeline.py --host https://kfp.example.org
    Again and again:                 kfp-volcano schedule create nightly pipeline.py --cron "30 2 * * *"
    Only compile it for one:         kfp-volcano compile pipeline.py -o pipeline.yaml
    Train without a pipeline:        kfp-volcano jobs submit job.yaml
    What goes on in the queues:      kfp-volcano top
    The story of a Job:              kfp-volcano trace NAMESPACE/JOB
    What more GPUs would change:     kfp-volcano whatif --add-nodes 2
    Another size for a Job:          kfp-volcano resize vision/resnet-1a2b3c4d --workers 6 --for 2h
    Queues of departments and teams: kfp-volcano queues plan tree.yaml
    Pools of shared GPUs:            kfp-volcano pools plan pools.yaml
    Is a training script elastic:    kfp-volcano check-script train.py
    Which settings train best:       kfp-volcano search job.yaml --local --param env.LR=0.01,0.1

    \b
    Exit codes: 0 done · 1 the training failed · 2 wrong use or input ·
                3 the cluster could not be reached or refused · 4 the run was terminated · 130 interrupted
    """


main.add_command(check_script)
main.add_command(convert)
spec_argument = click.argument("spec", type=click.Path(path_type=Path))
pipeline_argument = click.argument("pipeline", type=click.Path(path_type=Path))
pipeline_option = click.option("--pipeline", "name", metavar="NAME", help="Which pipeline, where the file has several.")


@main.command()
@spec_argument
@profiles_option
def validate(spec: Path, profiles: Path | None) -> None:
    """Check a TrainingJob: every problem at once, each with its place.

    \b
    Example: kfp-volcano validate job.yaml
    """
    job = _read(spec, profiles)
    replicas = job.workers.replicas
    size = ("" if replicas.fixed else f"{replicas.min} to ") + counted(replicas.max, "worker")
    click.echo(f"{spec}: {job.namespace}/{job.name} is valid: {size} in queue {job.queue}")


@main.command()
@spec_argument
@click.option("--workers", type=int, help="Start with this many workers; by default the least.")
@click.option("--run-id", default="render", show_default=True, help="The run id that names the Job.")
@profiles_option
@pools_option
def render(spec: Path, *, workers: int | None, run_id: str, profiles: Path | None, pools_file: Path | None) -> None:
    """Print the Volcano manifests of a TrainingJob, as YAML.

    \b
    Example: kfp-volcano render job.yaml | kubectl apply --dry-run=server -f -
    """
    from kfp_volcano.platform_files import in_its_pool  # noqa: PLC0415
    from kfp_volcano.schemas.names import job_name  # noqa: PLC0415
    from kfp_volcano.schemas.records import RENDERED  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.job import manifests  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml  # noqa: PLC0415

    job = in_its_pool(_read(spec, profiles), pools_file)
    replicas = job.workers.replicas
    workers = replicas.min if workers is None else workers
    if workers not in (replicas.min, *replicas.sizes):
        raise SpecError(f"{workers} is not one of {', '.join(map(str, replicas.sizes))}", source="--workers")
    objects = manifests(job, name=job_name(job.name, run_id), run_id=run_id, step=RENDERED, workers=workers)
    click.echo(manifest_yaml(objects), nl=False)


@main.command()
@click.argument("field", default="")
@click.option("--schema", is_flag=True, help="Print a kind's whole JSON Schema, for editors and other validators.")
def explain(field: str, *, schema: bool) -> None:
    """Print the documentation of a field, and what is below it.

    Of a TrainingJob, or of the kind that the field begins with: QueueTree, GPUPools, Policy,
    ResourceProfiles or Scenario.

    \b
    Example: kfp-volcano explain spec.elasticity
             kfp-volcano explain GPUPools.spec.pools
             kfp-volcano explain --schema > training-job.v1.schema.json
    """
    from kfp_volcano.schemas.explain import explain as explanation  # noqa: PLC0415
    from kfp_volcano.schemas.explain import schema_text  # noqa: PLC0415

    click.echo(schema_text(field or "TrainingJob") if schema else explanation(field), nl=False)


@main.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@profiles_option
def diff(before: Path, after: Path, profiles: Path | None) -> None:
    """Show what differs between the manifests of two TrainingJobs: nothing where they mean the same.

    \b
    Example: kfp-volcano diff job.yaml job-2.yaml
    """
    from kfp_volcano.volcano.manifests.diff import lines  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.job import manifests  # noqa: PLC0415

    jobs = [_read(path, profiles) for path in (before, after)]
    name = jobs[0].name
    first, second = (
        manifests(job, name=name, run_id="diff", step="diff", workers=job.workers.replicas.initial) for job in jobs
    )
    for line in lines(first, second):
        click.echo(line)


@main.command("compile")
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
    click.echo(f"{output}: compiled", err=True)


@main.command()
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


@main.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-run"), show_default=True)
def demo(out: Path) -> None:
    """See it work: a training grows into an idle queue, gives GPUs to a waiting gang, and grows again.

    Takes about four minutes on two cores; the report explains each resize.
    """
    from kfp_volcano.pipelines.demo import demo_run, other_team  # noqa: PLC0415

    _finish(demo_run(out, run_id=uuid.uuid4().hex[:8]), companion=other_team)


main.add_command(doctor)
main.add_command(submit)
main.add_command(schedule)
main.add_command(search)
main.add_command(simulate)
main.add_command(jobs)
main.add_command(queues)
main.add_command(pools)
main.add_command(top)
main.add_command(trace)
main.add_command(whatif)
main.add_command(resize)
main.add_command(hold)
main.add_command(release)
main.add_command(priority)
main.add_command(reap)
main.add_command(autoscaler)


def _finish(plan: Any, companion: Any = None) -> None:
    """Run to the end, say where the results are, and exit as the run ended."""
    from rich.console import Console  # noqa: PLC0415

    from kfp_volcano.pipelines.local import run_locally  # noqa: PLC0415

    console = Console(stderr=True)
    started = time.time()
    console.print(f"run {plan.run_id}: starting an embedded cluster of {plan.nodes} GPUs", highlight=False)
    try:
        outcome = run_locally(plan, console=console, companion=companion)
    except KeyboardInterrupt:
        click.echo("everything this command started has been ended", err=True)
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


def _read(path: Path, profiles: Path | None = None) -> TrainingJob:
    from kfp_volcano.platform_files import resource_profiles  # noqa: PLC0415
    from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415

    return training_job(read_document(path), source=str(path), profiles=resource_profiles(profiles))
