# SPDX-License-Identifier: Apache-2.0
"""The story of a run in plain words, from the figures of its result."""

from __future__ import annotations

from typing import Any

from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.events import Kind
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.volcano.manifests.status import JobState

__all__ = ["SEEN", "clock", "duration", "exact", "lasting", "story", "succeeded", "watched"]

SEEN: set[str] = {Kind.NOT_FINITE, Kind.LOSS_SPIKE, Kind.GRADIENT_SPIKE, Kind.SLOW_DOWN}
"""Kinds of what the watch on convergence sees."""
_DONE: set[str] = {
    *(Kind.ROLLED_BACK, Kind.BATCHES_SKIPPED, Kind.RATE_LOWERED, Kind.GROWTH_STOPPED, Kind.SIZE_ASKED),
    *(Kind.STOPPED, Kind.STOPPED_EARLY, Kind.RECOVERED, Kind.CHECKPOINT_FAILED),
}
"""And of what follows from it."""

_MOST_TOLD = 5
_CAUSES: dict[str, str] = {
    Reason.QUEUE_IDLE: "because GPUs of the queue were idle",
    Reason.GANG_PENDING: "because another gang was waiting",
    Reason.RECLAIMED: "because another queue's gang needed what was borrowed",
    Reason.QUEUE_TIGHT: "because the queue was too full",
    Reason.OVERRIDE: "because a person set its size",
    Reason.UNPLACED: "because some of its workers found no node",
    Reason.WATCHED: "because training had gone back to where it had that size",
}


def story(result: dict[str, Any]) -> list[str]:
    """A few sentences: what ran and how it ended, its resizes and for whom, the samples, the cost."""
    told = [
        _opening(result),
        _resizes(result),
        *_gangs(result),
        *_watch(result),
        _samples(result),
        _cost(result),
        _interruptions(result),
    ]
    return [sentence for sentence in told if sentence]


def succeeded(result: dict[str, Any]) -> bool:
    """Whether the Job ended well."""
    return bool(result["state"] == JobState.SUCCEEDED)


def exact(result: dict[str, Any]) -> bool | None:
    """Whether every sample was fed exactly once an epoch; None where the ledgers do not tell."""
    if result["duplicates"] is None or result["missing"] is None:
        return None
    same = result["samples_seen"] == result["samples_expected"]
    return bool(same and not (result["duplicates"] or result["missing"] or result["problems"]))


def lasting(resize: dict[str, Any]) -> float | None:
    """Seconds from a resize's request to its end; None where it did not come to one."""
    return None if resize["done_at"] is None else float(resize["done_at"] - resize["requested_at"])


def duration(seconds: float) -> str:
    """A duration as people say it: `0.21 s`, `7.4 s`, `48 s`, `2 min 41 s`, `3 h 05 min`."""
    if round(seconds, 2) < 1:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 10:  # noqa: PLR2004 - one decimal says enough below ten seconds
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 - up to two minutes people count seconds
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004 - seconds in an hour
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def clock(seconds: float) -> str:
    """A moment of the run, counted from its start: `0:07`, `12:30`, `1:02:05`."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _opening(result: dict[str, Any]) -> str:
    took = duration(result["wall_s"])
    if not succeeded(result):
        why = f" ({result['reason']})" if result["reason"] else ""
        return f"{result['job']} did not succeed: {result['state']}{why} after {took}."
    epochs = f" for {counted(result['epochs'], 'epoch')}" if result["epochs"] is not None else ""
    reached = f" and reached an accuracy of {result['accuracy']:.1%}" if result["accuracy"] is not None else ""
    return f"{result['job']} trained{epochs} in {took}{reached}."


def _resizes(result: dict[str, Any]) -> str:
    done = [resize for resize in result["resizes"] if resize["phase"] == "Done"]
    if not done:
        return "None of its resizes was completed." if result["resizes"] else "Its size never changed."
    start = f"It began with {counted(done[0]['from'], 'worker')}"
    if len(done) > _MOST_TOLD:
        sizes = [resize["to"] for resize in done] + [done[0]["from"]]
        return f"{start} and was resized {len(done)} times, between {min(sizes)} and {counted(max(sizes), 'worker')}."
    told = []
    for resize in done:
        verb = "grew" if resize["to"] > resize["from"] else "shrank"
        told.append(f"{verb} to {resize['to']} {_cause(resize, result)}")
    parts = [start, *told]
    return f"{', '.join(parts[:-1])}{' and' if len(parts) == 2 else ', and'} {parts[-1]}."  # noqa: PLR2004


def _cause(resize: dict[str, Any], result: dict[str, Any]) -> str:
    if resize["reason"] == Reason.GANG_PENDING:
        for gang in result["other_gangs"]:
            if gang["submitted"] <= resize["requested_at"] <= (gang["started"] or resize["requested_at"]):
                return f"so that {gang['job']} could have its {counted(gang['gpus'], 'GPU')}"
    if resize["reason"] == Reason.QUEUE_IDLE:
        ended = [gang for gang in result["other_gangs"] if gang["ended"] and gang["ended"] <= resize["requested_at"]]
        if ended and result["resizes"][0]["requested_at"] < ended[-1]["ended"]:
            return f"once {ended[-1]['job']} had ended"
    return _CAUSES.get(resize["reason"], f"({resize['reason']})")


def _gangs(result: dict[str, Any]) -> list[str]:
    told = []
    for gang in result["other_gangs"][:_MOST_TOLD]:
        size = counted(gang["gpus"], "GPU")
        if gang["started"] is None:
            told.append(f"{gang['job']} waited for {size} and did not get them.")
            continue
        waited = duration(gang["started"] - gang["submitted"])
        held = f" and held them for {duration(gang['ended'] - gang['started'])}" if gang["ended"] else ""
        told.append(f"{gang['job']} waited {waited} for {size}{held}.")
    return told


def _watch(result: dict[str, Any]) -> list[str]:
    """What training saw go wrong in its own numbers, and did about it."""
    did = {
        Kind.ROLLED_BACK: "it went {what}",
        Kind.RATE_LOWERED: "{what}",
        Kind.GROWTH_STOPPED: "{what}",
        Kind.BATCHES_SKIPPED: "{what}",
        Kind.STOPPED: "{what}",
    }
    told: list[str] = []
    for entry in watched(result):
        if entry["kind"] in SEEN:
            told.append(f"Training saw that {entry['what']}")
        elif entry["kind"] in did and told:
            told[-1] += f"; {did[Kind(entry['kind'])].format(what=entry['what'])}"
        elif entry["kind"] == Kind.STOPPED_EARLY:
            told.append(f"It ended early: {entry['what']}")
    if len(told) > _MOST_TOLD:
        return [f"{told[0]}.", f"{len(told) - 1} more things were seen in its numbers."]
    return [f"{each}." for each in told]


def watched(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of the story that come from the watch on convergence, in order."""
    return [entry for entry in result.get("trace") or () if entry["kind"] in SEEN | _DONE]


def _samples(result: dict[str, Any]) -> str:
    if exact(result) is None:
        return ""
    if exact(result):
        fed = f"All {result['samples_expected']:,} samples were fed exactly once: none twice, none missed."
        skipped = result.get("skipped")
        return f"{fed} {skipped:,} others were passed over on purpose." if skipped else fed
    return (
        f"Of {result['samples_expected']:,} samples to feed, {result['missing']:,} were missed and "
        f"{result['duplicates']:,} fed twice or more."
    )


def _cost(result: dict[str, Any]) -> str:
    costs = [resize for resize in result["resizes"] if resize["pause_s"] is not None]
    if not costs:
        return ""
    lost = sum(resize["steps_lost"] or 0 for resize in costs)
    pause = duration(max(resize["pause_s"] for resize in costs))
    steps = f"cost {counted(lost, 'step')}" if lost else "cost no step"
    if len(costs) == 1:
        return f"The resize paused training for {pause} and {steps}."
    return f"The resizes paused training for {pause} at most and {steps}."


def _interruptions(result: dict[str, Any]) -> str:
    found = result["interruptions"] or []
    left = [change for change in found if change["to"] < change["from"]]
    if not left:
        return ""
    worst = duration(max(change["pause_s"] for change in left))
    if len(left) == 1:
        return (
            f"Unplanned, workers fell from {left[0]['from']} to {left[0]['to']} once; training went on after {worst}."
        )
    return f"Unplanned, workers were lost {len(left)} times; training went on after {worst} at most."
