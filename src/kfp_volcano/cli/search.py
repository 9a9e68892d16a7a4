# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano search`: many trainings that differ in their specs, for the best of them."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.backend import pairs
from kfp_volcano.cli.options import cluster_options, pools_option, profiles_option, reach
from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.launcher.searching.record import Found, Record
    from kfp_volcano.volcano.launcher.searching.tuning import Trial

__all__ = ["search"]

NOTHING_ENDED = 1


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--param", "params", multiple=True, callback=pairs, metavar="PATH=VALUES", help="What to vary; repeat.")
@click.option("--trials", type=click.IntRange(min=1), help="How many to draw; by default the whole grid.")
@click.option("--metric", default="accuracy", show_default=True, metavar="NAME", help="As the training code logs it.")
@click.option("--mode", type=click.Choice(("max", "min")), default="max", show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of what is drawn.")
@click.option("--parallel", type=click.IntRange(min=1), default=4, show_default=True, help="Jobs submitted at a time.")
@click.option("--no-prune", is_flag=True, help="Let bad trials train to their end.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("search"), show_default=True)
@click.option("--local", is_flag=True, help="On this machine, with an embedded cluster.")
@click.option("--nodes", default="2x4", show_default=True, help="With --local: logical nodes and their GPUs.")
@profiles_option
@pools_option
@cluster_options
def search(
    spec: Path,
    *,
    params: dict[str, str],
    trials: int | None,
    metric: str,
    mode: str,
    seed: int,
    parallel: int,
    no_prune: bool,
    out: Path,
    local: bool,
    nodes: str,
    profiles: Path | None,
    pools_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> int:
    """Search a TrainingJob's fields for the values that train best: the whole grid, or --trials drawn at random.

    PATH is a field under `spec`, VALUES a list (32,64), uniform(LOW,HIGH), loguniform(LOW,HIGH) or randint(LOW,HIGH).
    Each trial is a Job in the spec's queue; bad ones are given up early (ASHA), and their GPUs are free at once. The
    same command with the same --out goes on with a search that was interrupted. Needs the extra `tune`.

    \b
    OUT/best.yaml is the best spec, OUT/results.json tells of all trials, OUT/trials has their logs.
    Ends with 0 if a trial has ended, 1 if none has, 130 if interrupted.

    \b
    Example: kfp-volcano search job.yaml --local --param elasticity.batch.global=32,64 --metric accuracy
    """
    from kfp_volcano.volcano.launcher.searching.record import Record  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.searching.space import has_grid, space  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.searching.trial import run_id  # noqa: PLC0415

    wire = read_document(spec)
    dimensions = space(params, wire)
    if trials is None and not has_grid(dimensions):
        raise SpecError([Problem("--trials", "a distribution has no grid", "say how many to draw")])
    # Takes seconds: whoever has mistyped need not wait for it.
    from kfp_volcano.volcano.launcher.searching import tuning  # noqa: PLC0415

    drawn = tuning.drawn(dimensions, count=trials, seed=seed)
    jobs = _jobs(wire, drawn, source=str(spec), profiles=profiles, pools=pools_file)
    asked = {"spec": wire, "param": params, "trials": trials, "metric": metric, "mode": mode, "seed": seed}
    record = Record(out, asked)
    left = tuple(
        tuning.Trial(number=number, values=values, job=job, run_id=run_id(record.id, number, attempt), attempt=attempt)
        for number, (values, job) in enumerate(zip(drawn, jobs, strict=True), 1)
        if (attempt := record.attempt(number))
    )
    if record.begun:
        _say(f"going on with the search in {out}: {len(left)} of {len(drawn)} trials are left")

    def ended(found: Found) -> None:
        record.add(found)
        _say(f"trial {found.trial} {_state(found)}: {found.message or f'{metric} {_figure(found.value)}'}")

    if left:
        place = _embedded(out, nodes, jobs) if local else _kubernetes(kubeconfig, context, record.id, jobs)
        with place as environment, tempfile.TemporaryDirectory(prefix=".tune-", dir=out) as scratch:
            work = tuning.Work(
                trials=left,
                metric=metric,
                mode=mode,
                folder=str(spec.resolve().parent) if local else "",
                environment=environment,
                logs=out.resolve() / "trials",
            )
            tuning.run(
                work, parallel=parallel, prune=not no_prune, scratch=Path(scratch).resolve(), begun=_begun, ended=ended
            )
    return _conclude(record, wire, list(params), metric=metric, mode=mode)


def _jobs(
    wire: Mapping[str, Any],
    drawn: Sequence[Mapping[str, Any]],
    *,
    source: str,
    profiles: Path | None,
    pools: Path | None,
) -> list[TrainingJob]:
    """The trials' specs. Raises SpecError for all that is wrong with any of them."""
    from kfp_volcano.platform_files import in_its_pool, resource_profiles  # noqa: PLC0415
    from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.searching.space import varied  # noqa: PLC0415

    known = resource_profiles(profiles)
    jobs: list[TrainingJob] = []
    problems: list[Problem] = []
    for values in drawn:
        try:
            job = in_its_pool(training_job(varied(wire, values), source=source, profiles=known), pools)
        except SpecError as error:
            problems += error.problems
            continue
        if job.elasticity.strategy != "live":
            problems.append(Problem("spec.elasticity.strategy", "no other than live tells its metrics while it trains"))
        jobs.append(job)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)), source=source)
    return jobs


@contextmanager
def _embedded(out: Path, nodes: str, jobs: Sequence[TrainingJob]) -> Iterator[dict[str, str]]:
    """A cluster on this machine; yields what leads a process to it."""
    from kfp_volcano.schemas.names import ENV_CLUSTER  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.host import start_host, stop_host  # noqa: PLC0415

    address = start_host(directory=out, nodes=nodes, queues=sorted({"default", *(job.queue for job in jobs)}))
    try:
        with _interruptible():
            yield {ENV_CLUSTER: f"embedded:{address}"}
    finally:
        stop_host()


@contextmanager
def _kubernetes(
    kubeconfig: Path | None, context: str | None, search_id: str, jobs: Sequence[TrainingJob]
) -> Iterator[dict[str, str]]:
    """The cluster that the options name; yields what leads a process to it. Interrupted, no Job trains on."""
    from kfp_volcano.schemas.names import ENV_CLUSTER  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.host import start_own_ray  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.searching.trial import cancel_trials  # noqa: PLC0415

    cluster = reach(kubeconfig, context)
    named = {"KUBECONFIG": str(kubeconfig.resolve())} if kubeconfig else {}
    if kubeconfig or context:
        named[ENV_CLUSTER] = f"kubernetes:{context or ''}"
    own = start_own_ray()
    try:
        try:
            with _interruptible():
                yield named
        finally:
            own.stop()  # first, so that no trial creates another
    except KeyboardInterrupt:
        for namespace in {job.namespace for job in jobs}:
            cancelled = cancel_trials(cluster, namespace, search_id)
            _say(f"{cancelled} Jobs in {namespace} are deleted")
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does; begins after Ray has, which has handlers of its own."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        _say("interrupted: the same command goes on with the search")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conclude(record: Record, wire: Mapping[str, Any], paths: Sequence[str], *, metric: str, mode: str) -> int:
    """Print all trials, the best first, and keep its spec."""
    import yaml  # noqa: PLC0415

    from kfp_volcano.volcano.launcher.searching.record import ranked  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.searching.space import varied  # noqa: PLC0415

    found = ranked(record.found, mode)
    rows = [
        (
            str(each.trial),
            *(_shown(each.values[path]) for path in paths),
            _figure(each.value),
            _state(each),
            each.job,
            each.message.partition("\n")[0],
        )
        for each in found
    ]
    print_table(("TRIAL", *paths, metric.upper(), "STATE", "JOB", "WHY"), rows)
    best = found[0]
    if best.state != "ended":
        _say("no trial has ended")
        return NOTHING_ENDED
    text = yaml.safe_dump(varied(wire, best.values), sort_keys=False)
    file = record.folder / "best.yaml"
    file.write_text(f"# {metric} {_figure(best.value)}, trial {best.trial} of a search\n{text}", encoding="utf-8")
    _say(f"the best spec is {file}")
    return os.EX_OK


def _begun(trial: Trial) -> None:
    _say(f"trial {trial.number} begins: {', '.join(f'{path}={_shown(value)}' for path, value in trial.values.items())}")


def _state(found: Found) -> str:
    return f"given up at {found.percent:.0f} %" if found.state == "pruned" else found.state


def _shown(value: Any) -> str:
    return _figure(value) if isinstance(value, float) else str(value)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _say(line: str) -> None:
    say(line)
