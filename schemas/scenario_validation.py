# SPDX-License-Identifier: Apache-2.0
"""From what a user wrote to a Scenario, or to all that is wrong with it.

The JSON Schema (`schemas/json/scenario.v1.schema.json`) comes first, then what it cannot express, the queues as those
of a QueueTree among it, then the types. Whatever is wrong is found in one go.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import queue_rules
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.names import DEFAULT_QUEUE
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.queue_validation import build
from kfp_volcano.schemas.scenario import ScenarioSpec
from kfp_volcano.schemas.sound import Sound
from kfp_volcano.schemas.structure import Finding, deviations, load_schema
from kfp_volcano.schemas.wording import by_place, examine, explain, problems, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["scenario"]

_ARRIVALS = ("poisson", "diurnal", "bursts", "at")
_DURATIONS = ("fixed", "lognormal", "empirical")
_MOST_JOBS = 1_000_000
_HOUR = 3600.0


def scenario(value: Mapping[str, Any], *, source: str = "scenario") -> ScenarioSpec:
    """The Scenario in a mapping. Raises SpecError with every problem found."""
    plain, found = examine(value, load_schema("scenario.v1"))
    first = by_place(found)
    tree, wrong = _queue_tree(plain, first)
    found = list(by_place([*first.values(), *wrong]).values())
    if not wrong:
        sound = Sound(plain, first.keys())
        found = list(by_place([*found, *_findings(sound, tree)]).values())
    if found:
        raise SpecError(problems(found, source), source=source)
    spec = {key: part for key, part in plain["spec"].items() if key != "queues"}
    return typed(ScenarioSpec, spec, name=plain["metadata"]["name"], queues=build(tree) if tree else None)


def _queue_tree(plain: Any, broken: Collection[Path]) -> tuple[Mapping[str, Any] | None, list[Finding]]:
    """The queues as a QueueTree's document, and what is wrong with it at its places here."""
    spec = plain.get("spec") if isinstance(plain, dict) else None
    queues = spec.get("queues") if isinstance(spec, dict) else None
    if not isinstance(queues, dict) or not queues:
        return None, []
    tree = {"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", "metadata": {"name": "scenario"}, "spec": queues}
    schema = load_schema("queue-tree.v1")
    found = [each for one in deviations(tree, schema) for each in explain(one, schema)]
    first = by_place(found)
    found = list(by_place([*first.values(), *queue_rules.findings(tree, first.keys())]).values())
    return tree, [each._replace(path=("spec", "queues", *each.path[1:])) for each in found if each.path not in broken]


def _findings(sound: Sound, tree: Mapping[str, Any] | None) -> Iterator[Finding]:
    """What the schema cannot say of a document."""
    if all(sound.absent("spec", key) or not sound.count("spec", key) for key in ("loads", "jobs")) and sound.absent(
        "spec", "trace"
    ):
        yield Finding(("spec",), "has nothing to replay", "loads, jobs or a trace")
    if sound.absent("spec", "cluster") and sound.absent("spec", "trace"):
        yield Finding(("spec", "cluster"), "is missing, and there is no trace that could tell it", "nodes: …")
    yield from _cluster(sound)
    room = _room(sound)
    leaves = _leaves(tree)
    for load in range(sound.count("spec", "loads")):
        yield from _load(sound, ("spec", "loads", load), room, leaves)
    yield from _names(sound, "loads")
    yield from _names(sound, "jobs")
    for index in range(sound.count("spec", "jobs")):
        yield from _job(sound, ("spec", "jobs", index), room, leaves)
    if not sound.absent("spec", "trace"):
        yield from _queue(sound, ("spec", "trace"), leaves)
        yield from _points(sound, ("spec", "trace"))
        since, until = sound.get("spec", "trace", "since", default=0), sound.get("spec", "trace", "until")
        if since is not None and until is not None and duration(until) <= duration(since):
            yield Finding(("spec", "trace", "until"), f"{shown(until)} is not after since", "a later time")


def _cluster(sound: Sound) -> Iterator[Finding]:
    place: Path = ("spec", "cluster")
    count = _node_count(sound)
    for index in range(sound.count(*place, "outages")):
        node, at, until = (sound.get(*place, "outages", index, key) for key in ("node", "at", "until"))
        if node is not None and count is not None and int(node.removeprefix("node-")) >= count:
            yield Finding((*place, "outages", index, "node"), f"there is no {node}", f"node-0 to node-{count - 1}")
        if at is not None and until is not None and duration(until) <= duration(at):
            yield Finding((*place, "outages", index, "until"), f"{shown(until)} is not after at", "a later time")
    for key in ("mtbf", "mttr"):
        value = sound.get(*place, "failures", key)
        if value is not None and duration(value) < 1:
            yield Finding((*place, "failures", key), f"{shown(value)} is too short", "at least 1s")


def _node_count(sound: Sound) -> int | None:
    counts = [
        sound.get("spec", "cluster", "nodes", index, "count")
        for index in range(sound.count("spec", "cluster", "nodes"))
    ]
    return sum(counts) if counts and None not in counts else None


def _room(sound: Sound) -> dict[str, int] | None:
    """GPUs by class; None where that is not known."""
    found: Counter[str] = Counter()
    for index in range(sound.count("spec", "cluster", "nodes")):
        part = ("spec", "cluster", "nodes", index)
        count, gpus = (sound.get(*part, key) for key in ("count", "gpus"))
        kind = sound.get(*part, "class", default="")
        if count is None or gpus is None or kind is None:
            return None
        found[kind] += count * gpus
    return dict(found) or None


def _leaves(tree: Mapping[str, Any] | None) -> set[str]:
    """Queues that take jobs."""
    found, waiting = {DEFAULT_QUEUE}, list(tree["spec"]["queues"]) if tree else []
    while waiting:
        queue = waiting.pop()
        below = queue.get("queues", [])
        waiting += below
        if not below:
            found.add(queue["name"])
    return found


def _names(sound: Sound, key: str) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index in range(sound.count("spec", key)):
        name = sound.get("spec", key, index, "name")
        if name in first:
            yield Finding(("spec", key, index, "name"), f"{name} is the name of {key}[{first[name]}] too", "another")
        elif name is not None:
            first[name] = index


def _load(sound: Sound, place: Path, room: Mapping[str, int] | None, leaves: Collection[str]) -> Iterator[Finding]:
    yield from _one_of(sound, (*place, "arrivals"), _ARRIVALS)
    every = sound.get(*place, "arrivals", "bursts", "every")
    if every is not None and duration(every) <= 0:
        yield Finding((*place, "arrivals", "bursts", "every"), "is no time at all", "more than 0")
    until = sound.get("spec", "until", default="24h")
    if until is not None and sound.absent(*place, "most"):
        coming = _coming(sound, (*place, "arrivals"), duration(until))
        if coming > _MOST_JOBS:
            yield Finding(
                (*place, "arrivals"), f"about {coming:,.0f} jobs come", f"most: {_MOST_JOBS} or fewer, or fewer an hour"
            )
    for index in range(sound.count(*place, "jobs")):
        part = (*place, "jobs", index)
        yield from _one_of(sound, (*part, "duration"), _DURATIONS)
        yield from _lasting(sound, (*part, "duration"))
        yield from _placed(sound, part, room, leaves)
        for at in range(sound.count(*part, "gpus")):
            yield from _fits(sound, (*part, "gpus", at), part, room)


def _coming(sound: Sound, place: Path, until_s: float) -> float:
    """How many jobs come, about."""
    for kind in ("poisson", "diurnal"):
        rate = sound.get(*place, kind, "perHour")
        if rate is not None:
            return float(rate) * until_s / _HOUR
    every, jobs = sound.get(*place, "bursts", "every"), sound.get(*place, "bursts", "jobs")
    return jobs * until_s / max(1.0, duration(every)) if every is not None and jobs is not None else 0.0


def _one_of(sound: Sound, place: Path, keys: Sequence[str]) -> Iterator[Finding]:
    there = [key for key in keys if not sound.absent(*place, key)]
    value = sound.get(*place)
    if len(there) != 1 and (there or value is not None):
        what = f"has {' and '.join(there)}" if there else "says nothing"
        yield Finding(place, what, f"exactly one of {', '.join(keys)}")


def _lasting(sound: Sound, place: Path) -> Iterator[Finding]:
    """Durations of nothing: a job has something to do."""
    paths: list[Path] = [(*place, "fixed"), (*place, "lognormal", "median")]
    paths += [(*place, "empirical", index) for index in range(sound.count(*place, "empirical"))]
    for path in paths:
        value = sound.get(*path)
        if value is not None and duration(value) <= 0:
            yield Finding(path, "is nothing to do", "more than 0")


def _job(sound: Sound, place: Path, room: Mapping[str, int] | None, leaves: Collection[str]) -> Iterator[Finding]:
    yield from _placed(sound, place, room, leaves)
    yield from _fits(sound, (*place, "gpus"), place, room)
    value = sound.get(*place, "duration")
    if value is not None and duration(value) <= 0:
        yield Finding((*place, "duration"), "is nothing to do", "more than 0")
    gpus, each = sound.get(*place, "gpus"), sound.get(*place, "gpusPerWorker", default=1)
    if gpus is None or each is None:
        return
    least, most = (sound.get(*place, key, default=gpus) for key in ("least", "most"))
    uneven = [key for key, amount in (("gpus", gpus), ("least", least), ("most", most)) if amount and amount % each]
    if uneven:
        remedy = "a number of which they are multiples"
        yield Finding((*place, "gpusPerWorker"), f"{each} does not divide {' and '.join(uneven)}", remedy)
    if least is not None and least > gpus:
        yield Finding((*place, "least"), f"{least} is more than gpus", f"at most {gpus}")
    if most is not None and most < gpus:
        yield Finding((*place, "most"), f"{most} is less than gpus", f"at least {gpus}")


def _placed(sound: Sound, place: Path, room: Mapping[str, int] | None, leaves: Collection[str]) -> Iterator[Finding]:
    yield from _queue(sound, place, leaves)
    yield from _points(sound, place)
    for index in range(sound.count(*place, "classes")):
        kind = sound.get(*place, "classes", index)
        if kind is not None and room is not None and kind not in room:
            there = ", ".join(sorted(filter(None, room))) or "no class of nodes"
            yield Finding((*place, "classes", index), f"no node has GPUs of class {kind}", f"there is {there}")


def _queue(sound: Sound, place: Path, leaves: Collection[str]) -> Iterator[Finding]:
    queue = sound.get(*place, "queue", default=DEFAULT_QUEUE)
    if queue is not None and queue not in leaves:
        remedy = f"one of {', '.join(sorted(leaves))}; only a queue without queues below it takes jobs"
        yield Finding((*place, "queue"), f"there is no queue {queue} that takes jobs", remedy)


def _points(sound: Sound, place: Path) -> Iterator[Finding]:
    last = 0
    for index in range(sound.count(*place, "scaling", "points")):
        gpus = sound.get(*place, "scaling", "points", index, "gpus")
        if gpus is not None and gpus <= last:
            remedy = f"more than {last}: points are by ascending GPUs"
            yield Finding((*place, "scaling", "points", index, "gpus"), f"{gpus} is not more than before", remedy)
        last = max(last, gpus or 0)


def _fits(sound: Sound, path: Path, place: Path, room: Mapping[str, int] | None) -> Iterator[Finding]:
    gpus, kinds = sound.get(*path), sound.get(*place, "classes", default=[])
    if gpus is None or room is None or kinds is None:
        return
    there = sum(room.get(kind, 0) for kind in kinds) if kinds else sum(room.values())
    if gpus > there and (not kinds or there):
        yield Finding(path, f"{gpus} GPUs are more than there are", f"at most {there}")
