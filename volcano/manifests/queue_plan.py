# SPDX-License-Identifier: Apache-2.0
"""From the queues that are there to those of a tree: the steps, in an order in which Volcano refuses none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.queue_case import Case
from kfp_volcano.volcano.manifests.queue_order import Turn, shrinks, turns
from kfp_volcano.volcano.manifests.queue_quotas import quota_problems, quota_steps
from kfp_volcano.volcano.manifests.queue_state import existing_queues, problems
from kfp_volcano.volcano.manifests.queue_steps import Change, Plan, Step, changes, patch
from kfp_volcano.volcano.manifests.queue_terms import alike
from kfp_volcano.volcano.manifests.queues import queue_manifest, targets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kfp_volcano.schemas.queue_tree import QueueTree
    from kfp_volcano.volcano.manifests.queue_state import Objects
    from kfp_volcano.volcano.manifests.queue_terms import Terms

__all__ = ["plan"]


def plan(tree: QueueTree, objects: Objects) -> Plan:
    """The steps that bring a tree about on a cluster, from its objects as read; none where it is there already.

    A queue that has left the tree is deleted when nothing is in it; until then it is closed, and deserves nothing.
    Queues of others are not touched. Raises SpecError with all that keeps the tree from being brought about.
    """
    wanted, there = targets(tree), existing_queues(objects)
    found = [*problems(tree.name, wanted, there), *quota_problems(tree, objects.quotas)]
    if found:
        raise SpecError(found, source=f"tree {tree.name} on this cluster")
    case = Case(tree.name, wanted, there)
    quotas = tuple(quota_steps(tree, objects.quotas))
    changed = (*_default_released(case), *_turned(case))
    first, found = _closing(case, changed)
    if found:
        raise SpecError(found, source=f"tree {tree.name} on this cluster")
    return Plan(
        tree=tree.name,
        steps=(
            *(_state("open", name, "takes Jobs again; Volcano takes no change of it before") for name in first),
            *changed,
            *_closed_to_drain(case),
            *_opened_and_closed(case, first),
            *quotas,
        ),
        differences={
            **{f"Queue {name}": differing for name in case.ends if (differing := _differences(case, name))},
            **{f"ResourceQuota {step.namespace}/{step.name}": step.changes for step in quotas},
        },
        kept=tuple(
            f"{name} has left the tree, but has {there[name].occupied}: apply again when that has ended"
            for name in case.drained
        ),
    )


def _differences(case: Case, name: str) -> tuple[Change, ...]:
    end, before = case.ends[name], case.stored(name)
    owner = case.there[name].tree if name in case.there else None
    return (
        *changes(before, case.spec(name, end, before) if end else {}),
        *_changed("closed", case.is_closed(name), end is not None and case.closed(name)),
        *_changed("tree", owner, case.tree if end else None),
    )


def _closing(case: Case, steps: Iterable[Step]) -> tuple[list[str], list[Problem]]:
    """Of the queues that change while they close: those to open first, as the tree has them open, and the others."""
    first, found = [], []
    for name in dict.fromkeys(step.name for step in steps if step.action in {"update", "move"}):
        queue = case.there[name]
        if queue.closing and name in case.wanted and not case.closed(name) and not case.is_closed(queue.terms.parent):
            first.append(name)
        elif queue.closing:
            waits = queue.occupied or "what is in it"
            words = "is closing, and Volcano takes no change of it meanwhile"
            found.append(Problem(name, words, f"wait for {waits} to end"))
    return first, found


def _closed_to_drain(case: Case) -> Iterator[Step]:
    for name in case.drained:
        if not case.is_closed(name):
            yield _state("close", name, f"has left the tree; deleted when {case.there[name].occupied} has ended")


def _default_released(case: Case) -> Iterator[Step]:
    queue = case.there.get(names.DEFAULT_QUEUE)
    if names.DEFAULT_QUEUE not in case.wanted and queue and queue.tree == case.tree:
        yield Step(
            action="update",
            kind="Queue",
            name=names.DEFAULT_QUEUE,
            reason="has left the tree; Volcano keeps it, and it stays as it is",
            changes=_changed("tree", case.tree, None),
            patch=patch(queue.stored["metadata"], {}, {}, owner=None),
        )


def _turned(case: Case) -> Iterator[Step]:
    """The steps for what queues are to each other."""
    terms = {name: queue.terms for name, queue in case.there.items()}
    specs: dict[str, dict[str, Any]] = {}
    for turn in turns(terms, case.differing):
        now = terms.get(turn.name)
        if turn.terms is None:
            yield from _deleted(case, turn.name)
        elif now is None:
            yield _created(case, turn, turn.terms)
        else:
            yield _updated(case, turn, now, turn.terms, specs)
            terms[turn.name] = turn.terms


def _deleted(case: Case, name: str) -> Iterator[Step]:
    if not case.is_closed(name):
        yield _state("close", name, "takes no Jobs any more, for it is deleted next")
    yield Step(action="delete", kind="Queue", name=name, reason="has left the tree, and nothing is in it")


def _created(case: Case, turn: Turn, end: Terms) -> Step:
    manifest = queue_manifest(case.tree, turn.name, case.wanted[turn.name])
    return Step(
        action="create",
        kind="Queue",
        name=turn.name,
        reason=f"is new, below {end.parent}",
        changes=changes({}, manifest["spec"]),
        manifest=manifest,
        awaits=_awaited(case, turn, end),
    )


def _updated(case: Case, turn: Turn, now: Terms, end: Terms, specs: dict[str, dict[str, Any]]) -> Step:
    """The step that changes a queue; `specs` has, and gets, what queues have become by steps before."""
    name = turn.name
    queue = case.there[name]
    metadata, owner = queue.stored["metadata"], queue.tree
    if name in specs:  # its first step has made it the tree's
        owner = case.tree
        metadata = {**metadata, "labels": {names.QUEUE_TREE_LABEL: owner}}
    before = specs[name] if name in specs else case.stored(name)
    specs[name] = after = case.spec(name, end, before)
    return Step(
        action="update" if end.parent == now.parent else "move",
        kind="Queue",
        name=name,
        reason=_reason(case, turn, now, end),
        changes=(*changes(before, after), *_changed("tree", owner, case.tree)),
        patch=patch(metadata, before, after, owner=case.tree),
        awaits=_awaited(case, turn, end),
    )


def _reason(case: Case, turn: Turn, now: Terms, end: Terms) -> str:
    """Why a queue changes."""
    queue = case.there[turn.name]
    if turn.gives_way:
        return "gives way first, so that others can get what they wait for; its own follows"
    if turn.name in case.drained:
        return f"has left the tree, and deserves nothing any more; it still has {queue.occupied}"
    taken = "" if queue.tree == case.tree else "was made by other means, and is the tree's from now on; "
    if now.parent != end.parent:
        return f"{taken}goes from {now.parent} to {end.parent}"
    if alike(now, end):
        return taken.removesuffix("; ") or "is served otherwise"
    return f"{taken}has less from now on" if shrinks(now, end) else f"{taken}has more: there is room for it now"


def _awaited(case: Case, turn: Turn, end: Terms) -> str:
    """The queue that has to be seen empty before it gets its first queue below it."""
    above = case.there.get(end.parent)
    return end.parent if turn.first_below and above and above.pods else ""


def _opened_and_closed(case: Case, opened: Collection[str]) -> Iterator[Step]:
    for name in case.wanted:  # Volcano opens none below a closed one
        if case.is_closed(name) and not case.closed(name) and name not in opened:
            yield _state("open", name, "takes Jobs again")
    for name in reversed(case.wanted):
        if case.closed(name) and not case.is_closed(name):
            yield _state("close", name, "takes no Jobs and starts no pods any more; what runs in it runs on")


def _state(action: Any, name: str, reason: str) -> Step:
    return Step(action=action, kind="Queue", name=name, reason=reason)


def _changed(field: str, before: Any, after: Any) -> tuple[Change, ...]:
    return (Change(field, before, after),) if before != after else ()
