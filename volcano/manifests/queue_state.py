# SPDX-License-Identifier: Apache-2.0
"""The queues of a cluster as they are: read from its objects, and held against a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem
from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.queue_terms import Terms, amounts
from kfp_volcano.volcano.manifests.status import job_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.volcano.manifests.queues import Target

__all__ = ["Existing", "Objects", "existing_queues", "occupants", "problems"]

_MOST_NAMED = 3
_CLOSED = frozenset({"Closed", "Closing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What a plan is made from: objects as read from the cluster."""

    queues: Iterable[Mapping[str, Any]]
    jobs: Iterable[Mapping[str, Any]] = ()
    pod_groups: Iterable[Mapping[str, Any]] = ()
    quotas: Iterable[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """One queue of the cluster."""

    stored: Mapping[str, Any]
    terms: Terms
    tree: str | None
    """The tree it belongs to."""
    closed: bool
    closing: bool
    """Whether it waits for what is in it to end: until then Volcano's webhook takes no change of it."""
    pods: int
    """Pods that Volcano's last scheduling cycle counted in it and below it."""
    occupants: tuple[str, ...] = field(default=())
    """What is in the queue itself: Jobs that have not ended, PodGroups of other things."""

    @property
    def occupied(self) -> str:
        """What is in it, in words."""
        more = len(self.occupants) - _MOST_NAMED
        return ", ".join(self.occupants[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def existing_queues(objects: Objects) -> dict[str, Existing]:
    """The queues of a cluster but `root`, by name."""
    inside = occupants(objects)
    return {
        queue["metadata"]["name"]: _existing(queue, inside.get(queue["metadata"]["name"], ()))
        for queue in objects.queues
        if queue["metadata"]["name"] != names.ROOT_QUEUE
    }


def occupants(objects: Objects) -> dict[str, tuple[str, ...]]:
    """Who uses which queue: Jobs that may still run, and whatever else has a PodGroup.

    A PodGroup counts whatever its phase: as long as it is there Volcano's capacity plugin looks its queue up.
    """
    found: dict[str, dict[str, None]] = {}
    for job in objects.jobs:
        if not job_state(job).final:
            queue = job["spec"].get("queue") or names.DEFAULT_QUEUE
            found.setdefault(queue, {})[f"Job {_place(job)}"] = None
    for group in objects.pod_groups:
        queue = group["spec"].get("queue") or names.DEFAULT_QUEUE
        owner = next((each for each in group["metadata"].get("ownerReferences", ()) if each.get("controller")), None)
        what = (
            f"{owner['kind']} {group['metadata']['namespace']}/{owner['name']}"
            if owner
            else f"PodGroup {_place(group)}"
        )
        found.setdefault(queue, {})[what] = None
    return {queue: tuple(sorted(each)) for queue, each in found.items()}


def problems(tree: str, wanted: Mapping[str, Target], there: Mapping[str, Existing]) -> Iterator[Problem]:
    """What keeps the tree called `tree` from being brought about on a cluster."""
    above = {queue.terms.parent for queue in there.values()}
    for name, target in wanted.items():
        queue = there.get(name)
        if queue is None:
            continue
        if queue.tree not in {None, tree}:
            yield Problem(name, f"belongs to the tree {queue.tree}", "call it otherwise, or take it out of that tree")
        if not target.leaf and queue.occupants:
            yield Problem(
                name,
                f"cannot get queues below it while it has {queue.occupied}",
                "wait for them to end, or put the queues below another",
            )
        elif not target.leaf and name not in above and queue.pods:
            yield Problem(name, f"cannot get queues below it while it has {queue.pods} pods", "wait for them to end")
    for name, queue in there.items():
        parent = queue.terms.parent
        ours = parent in wanted or (parent in there and there[parent].tree == tree)
        if ours and name not in wanted and queue.tree != tree:
            yield Problem(
                name,
                f"is below {parent}, but is not in the tree",
                "add it to the tree, or give it another parent",
            )


def _existing(queue: Mapping[str, Any], inside: tuple[str, ...]) -> Existing:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    terms = Terms(
        parent=spec.get("parent") or names.ROOT_QUEUE,
        capability=amounts(spec.get("capability")),
        deserved=amounts(spec.get("deserved")),
        guarantee=amounts(spec.get("guarantee")),
    )
    return Existing(
        stored=queue,
        terms=terms,
        tree=(queue["metadata"].get("labels") or {}).get(names.QUEUE_TREE_LABEL),
        closed=status.get("state") in _CLOSED,
        closing=status.get("state") == "Closing",
        pods=int((status.get("allocated") or {}).get("pods", 0)),
        occupants=inside,
    )


def _place(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
