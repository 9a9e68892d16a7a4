# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano whatif`: capacity planning from the cluster as it is."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.options import cluster_options, pools_option, profiles_option, reach
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.cli.progress import Progress
    from kfp_volcano.elastic.simulator.figures import Figures
    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.elastic.simulator.reading.kubernetes import Dumped
    from kfp_volcano.elastic.simulator.scenario import Node, Scenario
    from kfp_volcano.elastic.simulator.whatif import Effect, Fate
    from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant

__all__ = ["whatif"]

_GPUS = re.compile(r"(?P<count>[1-9][0-9]{0,5})(?::(?P<kind>[A-Za-z0-9][-A-Za-z0-9._]*))?")
_NODES = re.compile(
    r"(?P<count>[1-9][0-9]{0,5})(?:x(?P<gpus>[1-9][0-9]{0,3}))?(?::(?P<kind>[A-Za-z0-9][-A-Za-z0-9._]*))?"
)
_QUOTA = re.compile(r"(?P<queue>[^=]+?)(?:\.(?P<share>deserved|capability|guarantee))?=(?P<gpus>[0-9]{1,7})")


@click.command()
@click.option(
    "--dump",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Objects as `kubectl get vcjob,podgroup,queue,node,pod,priorityclass -A -o json` prints them; - is standard "
    "input. By default the cluster itself is asked.",
)
@cluster_options
@click.option("--add-gpus", metavar="N[:CLASS]", multiple=True, help="So many GPUs more, on nodes like the others.")
@click.option("--add-nodes", metavar="N[xGPUS][:CLASS]", multiple=True, help="So many nodes more.")
@click.option(
    "--quota",
    "quotas",
    metavar="QUEUE[.SHARE]=GPUS",
    multiple=True,
    help="Another share for a queue: deserved, capability or guarantee; what it is limited by, where none is named.",
)
@click.option("--policy", metavar="NAME|FILE", help="Another policy: its name, or a file of kind Policy.")
@click.option("--policy-now", metavar="NAME|FILE", default="threshold", show_default=True, help="What decides now.")
@click.option("--job", type=click.Path(path_type=Path), metavar="SPEC", help="One more job: a TrainingJob.")
@click.option("--job-takes", metavar="DURATION", default="1h", show_default=True, help="How long, at its first size.")
@click.option("--nodes", "shape", metavar="NxG[:CLASS],…", help="The nodes, for a dump that has none.")
@click.option("--all", "every", is_flag=True, help="Show the jobs for which nothing changes, too.")
@output_option("table")
@profiles_option
@pools_option
def whatif(  # one parameter an option
    *,
    dump: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    add_gpus: tuple[str, ...],
    add_nodes: tuple[str, ...],
    quotas: tuple[str, ...],
    policy: str | None,
    policy_now: str,
    job: Path | None,
    job_takes: str,
    shape: str | None,
    every: bool,
    output: str,
    profiles: Path | None,
    pools_file: Path | None,
) -> None:
    """Say what would change for whom: more GPUs, other quotas, another policy, one more job.

    The cluster is replayed from now on, as it is and as it would be. Without a change this is a forecast: who starts
    and ends when.

    \b
    Example: kfp-volcano whatif --add-nodes 2
             kfp-volcano whatif --quota research=24 --policy adaptive
             kfp-volcano whatif --dump cluster.json --job train.yaml --job-takes 6h -o json
    """
    from kfp_volcano.cli.progress import own_output, progress  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.figures import figures  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.whatif import changed, effects  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.laboratory.contestants import contestants  # noqa: PLC0415

    wrong: list[Problem] = []
    shares = _shares(quotas, wrong)
    more = [_additions(add_gpus, _GPUS, "--add-gpus", wrong), _additions(add_nodes, _NODES, "--add-nodes", wrong)]
    if wrong:
        raise SpecError(wrong, source="kfp-volcano whatif")
    (now_policy,) = contestants([policy_now])
    (then_policy,) = contestants([policy]) if policy else (now_policy,)
    extra = _extra_job(job, profiles, pools_file) if job else None
    now, then = _moments(dump, kubeconfig, context, shape, extra, job_takes)
    wanted = changed(then.scenario, nodes=_nodes(then.scenario, *more), shares=shares)
    is_same = not (add_gpus or add_nodes or quotas or policy or job)
    with progress() as shown, own_output():
        before = _simulated("now", now.scenario, now_policy, shown)
        after = before if is_same else _simulated("then", wanted, then_policy, shown)
    found = effects(before, after, then.waiting_s)
    told = {
        "policies": [now_policy.name, then_policy.name],
        "gpus": [before.gpus, after.gpus],
        "notes": list(dict.fromkeys((*then.scenario.notes, *after.notes))),
    }
    if output != "table":
        jobs = [{**asdict(each), "differs": each.differs} for each in found]
        sums = {"before": asdict(figures(before)), "after": asdict(figures(after))}
        print_data({**told, "now": now.now, "figures": sums, "jobs": jobs}, output)
        return
    concerned = [each for each in found if every or is_same or each.differs]
    _print_jobs(concerned, forecast=is_same)
    _print_sums(figures(before), figures(after), told, len(found), sum(each.differs for each in found))


def _simulated(what: str, scenario: Scenario, contestant: Contestant, shown: Progress) -> Outcome:
    from kfp_volcano.elastic.simulator.simulate import simulate  # noqa: PLC0415

    jobs = len(scenario.jobs)
    return simulate(scenario, contestant.policy, watch=lambda at, ended: shown.clock(what, at, ended, jobs))


def _additions(
    given: Sequence[str], pattern: re.Pattern[str], option: str, wrong: list[Problem]
) -> list[re.Match[str]]:
    """What is to be added; what is wrong with it is added to the rest."""
    matches = [(text, pattern.fullmatch(text)) for text in given]
    remedy = "such as 16, or 16:a100" if pattern is _GPUS else "such as 2, 2x8 or 2x8:a100"
    wrong += [Problem(option, f"{text!r} says no number of them", remedy) for text, match in matches if match is None]
    return [match for _, match in matches if match is not None]


def _nodes(scenario: Scenario, gpus: Sequence[re.Match[str]], nodes: Sequence[re.Match[str]]) -> tuple[Node, ...]:
    from kfp_volcano.elastic.simulator.whatif import more_gpus, more_nodes  # noqa: PLC0415

    found = [more_gpus(scenario, int(each["count"]), each["kind"] or "") for each in gpus]
    for each in nodes:
        size = int(each["gpus"]) if each["gpus"] else None
        found.append(more_nodes(scenario, int(each["count"]), each["kind"] or "", size))
    flat = [node for part in found for node in part]
    return tuple(replace(node, name=f"more-{index}") for index, node in enumerate(flat))


def _shares(given: Sequence[str], wrong: list[Problem]) -> Mapping[str, Mapping[str, int]]:
    """The shares of queues; what is wrong with them is added to the rest."""
    found: dict[str, dict[str, int]] = {}
    for text in given:
        match = _QUOTA.fullmatch(text)
        if match is None:
            remedy = "QUEUE=GPUS, or QUEUE.capability=GPUS (deserved, capability, guarantee)"
            wrong.append(Problem("--quota", f"{text!r} is no quota", remedy))
        else:
            found.setdefault(match["queue"], {})[match["share"] or ""] = int(match["gpus"])
    return found


def _extra_job(path: Path, profiles: Path | None, pools_file: Path | None) -> dict[str, Any]:
    """The Volcano Job of one more TrainingJob."""
    from kfp_volcano.platform_files import in_its_pool, resource_profiles  # noqa: PLC0415
    from kfp_volcano.schemas.names import job_name  # noqa: PLC0415
    from kfp_volcano.schemas.records import RENDERED  # noqa: PLC0415
    from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.job import job_manifest  # noqa: PLC0415

    spec = training_job(read_document(path), source=str(path), profiles=resource_profiles(profiles))
    spec = in_its_pool(spec, pools_file)
    name = job_name(spec.name, "whatif")
    return job_manifest(spec, name=name, run_id="whatif", step=RENDERED, workers=spec.workers.replicas.initial)


def _moments(
    dump: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    shape: str | None,
    extra: dict[str, Any] | None,
    takes: str,
) -> tuple[Dumped, Dumped]:
    """The cluster as it is, and with the job that comes besides."""
    from kfp_volcano.elastic.simulator.reading.assumed import Assumed  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.reading.kubernetes import dumped, live  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.reading.shape import parse_nodes  # noqa: PLC0415
    from kfp_volcano.schemas.quantities import duration  # noqa: PLC0415
    from kfp_volcano.volcano.model.objects import time_text  # noqa: PLC0415

    try:
        takes_s = duration(takes)
    except ValueError as error:
        raise SpecError([Problem("--job-takes", f"{takes!r} is no duration", "such as 90m or 6h")]) from error
    assumed = Assumed(nodes=parse_nodes(shape) if shape else ())
    if dump is not None:
        source, at, document = str(dump), None, dict(read_document(dump))
    else:
        cluster, at, source = reach(kubeconfig, context), time.time(), "the cluster"
        document = live(cluster.list)
    now = dumped(document, assumed, name="now", source=source, now=at)
    if extra is None:
        return now, now
    extra["metadata"]["creationTimestamp"] = time_text(now.now)
    more = {"items": [*document["items"], {**extra, "status": {"state": {"phase": "Pending"}}}]}
    then = dumped(more, assumed, name="then", source=source, now=now.now)
    old = {job.name for job in now.scenario.jobs}
    jobs = tuple(
        job if job.name in old else replace(job, work=replace(job.work, duration_s=takes_s))  # type: ignore[type-var] # a dump's work is Traced
        for job in then.scenario.jobs
    )
    return now, replace(then, scenario=replace(then.scenario, jobs=jobs))


_COLUMNS = ("JOB", "QUEUE", "STARTS IN", "ENDS IN", "WAITS", "GPUS")


def _print_jobs(shown: Sequence[Effect], *, forecast: bool) -> None:
    if forecast:
        print_table(_COLUMNS, [(each.job, each.queue, *_fate(each.after)) for each in shown])
        return
    rows: list[tuple[str, ...]] = []
    for each in shown:
        was = _fate(each.before) if each.before else ("-",) * 4
        pairs = [one if one == other else f"{one} → {other}" for one, other in zip(was, _fate(each.after), strict=True)]
        rows.append((each.job, each.queue, *pairs))
    print_table(_COLUMNS, rows)


def _fate(fate: Fate) -> tuple[str, str, str, str]:
    starts = "runs" if fate.starts_s == 0 else _time(fate.starts_s)
    sizes = ",".join(map(str, fate.gpus[:_SIZES])) + (",…" if len(fate.gpus) > _SIZES else "")
    return starts, _time(fate.ends_s), _time(fate.waited_s), sizes or "none"


_SIZES = 4
"""Sizes of a job that are shown."""
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def _time(seconds: float | None) -> str:
    """A time in its two largest units; never where there is none."""
    if seconds is None:
        return "never"
    left = round(seconds)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def _print_sums(before: Figures, after: Figures, told: Mapping[str, Any], jobs: int, differ: int) -> None:
    click.echo()
    click.echo(f"{differ} of {jobs} jobs are concerned")
    for title, one, other in (
        ("GPUs", *map(str, told["gpus"])),
        ("policy", *told["policies"]),
        ("wait, mean", _time(before.avg_wait), _time(after.avg_wait)),
        ("done in, mean", _time(before.avg_jct), _time(after.avg_jct)),
        ("all done in", _time(before.makespan), _time(after.makespan)),
        ("GPUs in use", f"{before.utilisation:.0%}", f"{after.utilisation:.0%}"),
    ):
        click.echo(f"{title:<14} {one}" if one == other else f"{title:<14} {one} → {other}")
    for note in told["notes"]:
        say(f"note: {note}")
