# SPDX-License-Identifier: Apache-2.0
"""The one door to scenarios: a Scenario document, or a trace in any format that is known."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.loads import drawn_jobs, drawn_outages, scaling_of, stated_job
from kfp_volcano.elastic.simulator.reading.assumed import Assumed
from kfp_volcano.elastic.simulator.reading.kubernetes import dumped_scenario
from kfp_volcano.elastic.simulator.reading.shape import largest_node
from kfp_volcano.elastic.simulator.reading.sources import open_source
from kfp_volcano.elastic.simulator.reading.trace import read_trace
from kfp_volcano.elastic.simulator.scenario import ROOT, Job, Node, Queue, Scenario
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.documents import parse
from kfp_volcano.schemas.names import DEFAULT_QUEUE, GPU
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.scenario_validation import scenario as scenario_spec

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.schemas.queue_tree import Amounts, QueueTree
    from kfp_volcano.schemas.scenario import ScenarioSpec, TraceSource

__all__ = ["drawn", "draws", "generate", "is_document", "queues_of", "read_scenario"]

_DOCUMENTS = (".yaml", ".yml")
_KIND = re.compile(rb'"kind"\s*:\s*"Scenario"')
_BEGINNING = 4096
"""Bytes in which a document says what it is."""


def read_scenario(
    path: Path,
    *,
    form: str | None = None,
    assumed: Assumed | None = None,
    profiles: Path | None = None,
    seed: int | None = None,
) -> Scenario:
    """The scenario that a path names.

    Args:
        path: A Scenario document or a Kubernetes dump in YAML, or a trace as `read_trace` takes it.
        form: A trace's format.
        assumed: What a trace does not tell; a Scenario document says it itself.
        profiles: The folder of profiles, for Pollux' workloads.
        seed: Of a Scenario document's draws; None: its own.

    Raises:
        SpecError: It cannot be read, or is wrong: everything that is.
    """
    if is_document(path):
        source = open_source(path)
        document = parse(source.text.replace("\r\n", "\n"), source=source.name)
        if document.get("kind") == "List":
            return dumped_scenario(document, assumed or Assumed(), name=source.stem, source=source.name)
        return generate(scenario_spec(document, source=source.name), folder=path.parent, seed=seed, source=source.name)
    return read_trace(path, form=form, assumed=assumed, profiles=profiles)


def is_document(path: Path) -> bool:
    """Whether a path is read as a Scenario document: YAML is, and JSON that says so as it begins."""
    if not path.name.endswith(".json"):
        return path.name.endswith(_DOCUMENTS)
    try:
        with path.open("rb") as file:
            return _KIND.search(file.read(_BEGINNING)) is not None
    except OSError:
        return False  # whoever reads it tells why it cannot be read


def draws(path: Path) -> bool:
    """Whether another seed gives another scenario: a document draws jobs. Raises SpecError as `read_scenario` does."""
    if not is_document(path):
        return False
    source = open_source(path)
    document = parse(source.text.replace("\r\n", "\n"), source=source.name)
    return document.get("kind") != "List" and bool(scenario_spec(document, source=source.name).loads)


def drawn(path: Path, seed: int) -> Scenario:
    """What a Scenario document gives with a seed. Raises SpecError as `read_scenario` does."""
    return read_scenario(path, seed=seed)


def generate(spec: ScenarioSpec, *, folder: Path, seed: int | None = None, source: str = "") -> Scenario:
    """The scenario of a Scenario document.

    Args:
        spec: The document.
        folder: What the names of files in it are relative to.
        seed: Instead of the document's own.
        source: What messages call the document.

    Raises:
        SpecError: Its trace cannot be read, or has jobs of the name of others; or nothing came of its loads.
    """
    seed = spec.seed if seed is None else seed
    nodes = _nodes(spec)
    traced = _traced(spec.trace, nodes, folder) if spec.trace else None
    if traced is not None and not nodes:
        nodes = traced.nodes
    node_gpus = largest_node(nodes)
    jobs: list[Job] = [*traced.jobs] if traced else []
    jobs += [stated_job(each, node_gpus=node_gpus) for each in spec.jobs]
    for load in spec.loads:
        jobs += drawn_jobs(load, seed=seed, until_s=spec.until_s, node_gpus=node_gpus)
    if not jobs:
        raise SpecError([Problem("spec", "no job comes of it", "a longer until, or more an hour")], source=source)
    _only_once(jobs, source)
    jobs.sort(key=lambda job: job.submitted_at)
    lasting = max(spec.until_s, jobs[-1].submitted_at)
    outages = drawn_outages(spec.cluster, seed=seed, until_s=lasting) if spec.cluster else ()
    return Scenario(
        name=spec.name,
        nodes=nodes,
        jobs=tuple(jobs),
        queues=queues_of(spec.queues) if spec.queues else _flat(jobs, traced),
        outages=tuple(sorted(outages, key=lambda outage: (outage.at, outage.node))),
        interval_s=spec.interval_s,
        source=source,
        notes=traced.notes if traced else (),
    )


def _nodes(spec: ScenarioSpec) -> tuple[Node, ...]:
    walked = spec.cluster.walk() if spec.cluster else ()
    return tuple(Node(name=name, gpus=kind.gpus, gpu_class=kind.gpu_class, zone=kind.zone) for name, kind in walked)


def _traced(trace: TraceSource, nodes: tuple[Node, ...], folder: Path) -> Scenario:
    usual = Assumed()
    assumed = Assumed(
        nodes=nodes,
        elastic=(trace.elastic.least, trace.elastic.most) if trace.elastic else None,
        scaling=scaling_of(trace.scaling),
        start_s=trace.start_s,
        resize_s=trace.resize_s,
        restart_s=trace.restart_s,
        load=trace.load,
        since_s=trace.since_s,
        until_s=usual.until_s if trace.until_s is None else trace.until_s,
        limit=trace.most,
        only=frozenset(trace.only),
        queue=trace.queue,
    )
    profiles = folder / trace.profiles if trace.profiles else None
    return read_trace(folder / trace.file, form=trace.format, assumed=assumed, profiles=profiles)


def _only_once(jobs: list[Job], source: str) -> None:
    names = Counter(job.name for job in jobs)
    if twice := [name for name, count in names.items() if count > 1]:
        wrong = [Problem("spec", f"two jobs are called {name}", "another name for one of them") for name in twice]
        raise SpecError(wrong, source=source)


def _flat(jobs: list[Job], traced: Scenario | None) -> tuple[Queue, ...]:
    """The trace's queues, where it has some; else those that jobs name."""
    if traced is not None and len(traced.queues) > 1:
        return traced.queues
    return tuple(Queue(name=name) for name in sorted({job.queue for job in jobs}))


def queues_of(tree: QueueTree) -> tuple[Queue, ...]:
    """The queues of a tree in GPUs, parents before children, and Volcano's default queue."""
    found = [
        Queue(
            name=node.name,
            parent=parent.name if parent else ROOT,
            capability=_gpus(node.capability),
            deserved=_gpus(node.deserved),
            guarantee=_gpus(node.guarantee) or 0,
            weight=node.weight or 1,
            priority=node.priority,
            reclaimable=node.reclaimable,
        )
        for node, parent in tree.walk()
    ]
    there = any(queue.name == DEFAULT_QUEUE for queue in found)
    return tuple(found if there else [*found, Queue(name=DEFAULT_QUEUE)])


def _gpus(amounts: Amounts) -> int | None:
    return int(quantity(amounts[GPU])) if GPU in amounts else None
