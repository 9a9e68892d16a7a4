# SPDX-License-Identifier: Apache-2.0
"""Why a Job has the size it has, in words. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.launcher.story import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.records import ClassChange
    from kfp_volcano.volcano.launcher.why import Change, Why

__all__ = ["told"]

_INDENT = " " * 10
_FAILED = {
    Phase.ROLLED_BACK: "came to nothing, and was taken back",
    Phase.EXPIRED: "nobody carried it out in time",
    Phase.REFUSED: "was refused",
}


def told(why: Why, zone: timezone | None = None) -> list[str]:
    """Lines for people; times of day in a zone, by default that of this machine."""
    return list(_lines(why, zone))


def _lines(why: Why, zone: timezone | None) -> Iterator[str]:
    moments = [at for at in (why.began_at, why.seen_at, *(each.at for each in why.changes)) if at is not None]
    day = f", {_moment(min(moments), zone):%Y-%m-%d}" if moments else ""
    yield f"{why.job} in queue {why.queue}{day}"
    yield ""
    if why.began_at is not None and why.began_with is not None:
        yield f"{_clock(why.began_at, zone)}  began with {counted(why.began_with, 'worker')}"
    told = [(change.at, list(_change(change, zone))) for change in why.changes]
    told += [(change.at, list(_class(change, zone))) for change in why.classes]
    for _, lines in sorted(told, key=lambda each: each[0]):
        yield from lines
    if not why.changes:
        yield f"{_INDENT}its size has not been changed"
    yield ""
    yield from _now(why, zone)


def _change(change: Change, zone: timezone | None) -> Iterator[str]:
    sizes = f"{change.from_workers} -> {counted(change.to_workers, 'worker')}"
    yield f"{_clock(change.at, zone)}  {sizes}   {change.reason}"
    for text in (change.explanation, _who(change), "; ".join(part for part in (_end(change), _cost(change)) if part)):
        if text:
            yield f"{_INDENT}{text}"
    if change.numbers:
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in change.numbers.items())
        yield f"{_INDENT}numbers: {numbers}"


def _class(change: ClassChange, zone: timezone | None) -> Iterator[str]:
    yield f"{_clock(change.at, zone)}  {change.from_class or 'no class'} -> {change.to_class}   {change.reason}"
    yield f"{_INDENT}{change.explanation}"
    yield f"{_INDENT}changed by {change.by}"


def _who(change: Change) -> str:
    if change.policy == "person" or (not change.policy and change.reason == Reason.OVERRIDE.value):
        return f"asked for by {change.by or 'a person'}"
    by = f" ({change.by})" if change.by else ""
    return f"asked for by the autoscaler{by}, policy {change.policy}" if change.policy else ""


def _end(change: Change) -> str:
    if change.phase is None:
        return "nobody has carried it out yet"
    if change.phase in _FAILED:
        why = f": {change.message}" if change.message else ""
        return f"{_FAILED[change.phase]}{why}"
    if change.phase is not Phase.DONE:
        return f"is being carried out ({change.phase.value})"
    took = "" if change.ended_at is None else f" after {duration(max(0.0, change.ended_at - change.at))}"
    return f"done{took}{f' ({change.message})' if change.message else ''}"


def _cost(change: Change) -> str:
    if change.phase is not Phase.DONE or change.pause_s is None:
        return ""
    lost = f"{change.steps_lost} {'step' if change.steps_lost == 1 else 'steps'}" if change.steps_lost else "no step"
    return f"training paused for {duration(change.pause_s)} and lost {lost}"


def _now(why: Why, zone: timezone | None) -> Iterator[str]:
    if why.state:
        at = f"{_clock(why.ended_at, zone)}  " if why.ended_at is not None else ""
        yield f"{at}It has ended: {why.state}."
    holds = why.holds
    if holds is not None and why.seen_at is not None:
        size = counted(why.workers if why.workers is not None else holds.from_workers, "worker")
        word = "had" if why.state else "has"
        yield f"{_clock(why.seen_at, zone)}  Last decided: it {word} {size}, for {holds.reason.value}"
        yield f"{_INDENT}{holds.explanation}"
        return
    if why.workers is not None and not why.state:
        yield f"It has {counted(why.workers, 'worker')} now{f': {why.note}' if why.note else ''}."
        if not why.note:
            yield "What holds it there is in the autoscaler's decision log: --decisions DIR."


def _moment(at: float, zone: timezone | None) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone(zone)


def _clock(at: float, zone: timezone | None) -> str:
    return f"{_moment(at, zone):%H:%M:%S}"
