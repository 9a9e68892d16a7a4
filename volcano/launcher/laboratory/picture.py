"""What the page draws of a comparison, as plain values: small whatever the number of jobs. Pure.

GPUs over time are exact while they change seldom, else means over equal parts of the time. Of many jobs, those with the
longest completion times are drawn. `left_out` says what is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.simulator.outcome import Decided, JobOutcome, Outcome

__all__ = ["MOST_JOBS", "MOST_LANES", "MOST_TEAMS", "picture"]

MOST_TEAMS = 6
"""Colours that can be told apart; further teams are one, the last."""
MOST_STEPS = 1200
MOST_LANES = 400
MOST_SPANS = 20_000
MOST_DECISIONS = 4000
MOST_JOBS = 1000
OTHERS = "other teams"


def picture(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Teams, a timeline of each policy, the table of jobs, and what was left out of them."""
    every = list(outcomes.values())
    end = max((outcome.ended_at for outcome in every), default=0.0)
    teams = _teams(every)
    longest = _longest(every)
    lanes = _lanes(every, longest)
    left_out = []
    count = len(every[0].jobs)
    if len(lanes) < count:
        left_out.append(f"{len(lanes)} of {count:,} jobs are drawn: those that took longest under any policy")
    if count > MOST_JOBS:
        left_out.append(f"the table holds {MOST_JOBS:,} jobs of {count:,}, likewise: the CSV files hold all")
    timelines = [_timeline(name, outcome, teams, lanes, end, left_out) for name, outcome in outcomes.items()]
    return {
        "end": _round(end),
        "gpus": max((outcome.gpus for outcome in every), default=0),
        "teams": teams,
        "lanes": [_row(every, index, teams) for index in lanes],
        "policies": timelines,
        "rows": [_row(every, index, teams) for index in sorted(longest[:MOST_JOBS])],
        "left_out": left_out,
    }


def _teams(outcomes: Sequence[Outcome]) -> list[str]:
    """Teams by the GPU time they held under all policies, most first; those for whom no colour is left are one."""
    held: dict[str, float] = {}
    for outcome in outcomes:
        for job in outcome.jobs:
            held[_team(job)] = held.get(_team(job), 0.0) + job.gpu_s
    names = sorted(held, key=lambda team: (-held[team], team))
    return names if len(names) <= MOST_TEAMS else [*names[: MOST_TEAMS - 1], OTHERS]


def _team(job: JobOutcome) -> str:
    return job.team or job.queue


def _index(team: str, teams: Sequence[str]) -> int:
    return teams.index(team) if team in teams else len(teams) - 1


def _longest(outcomes: Sequence[Outcome]) -> list[int]:
    """The jobs' indices, the longest completion time under any policy first; what did not end took longest."""

    def worst(index: int) -> float:
        return max(
            outcome.ended_at - job.submitted_at + 1e12 if job.jct is None else job.jct
            for outcome in outcomes
            for job in (outcome.jobs[index],)
        )

    return sorted(range(len(outcomes[0].jobs)), key=lambda index: (-worst(index), index))


def _lanes(outcomes: Sequence[Outcome], longest: Sequence[int]) -> list[int]:
    """As many of the longest jobs as there is room for, in the order of submission."""
    spans = [0] * len(outcomes)
    chosen: list[int] = []
    for index in longest[:MOST_LANES]:
        spans = [count + len(outcome.jobs[index].spans) for count, outcome in zip(spans, outcomes, strict=True)]
        if max(spans) > MOST_SPANS and chosen:
            break
        chosen.append(index)
    return sorted(chosen)


def _row(outcomes: Sequence[Outcome], index: int, teams: Sequence[str]) -> list[Any]:
    """Name, team and its colour, GPUs asked for, submission, then completion time, wait and resizes by policy."""
    job = outcomes[0].jobs[index]
    each = [outcome.jobs[index] for outcome in outcomes]
    return [
        job.name, _team(job), _index(_team(job), teams), job.asked_gpus, _round(job.submitted_at),
        [None if one.jct is None else _round(one.jct) for one in each],
        [None if one.waited_s is None else _round(one.waited_s) for one in each],
        [one.resizes for one in each],
    ]  # fmt: skip


def _timeline(
    name: str, outcome: Outcome, teams: Sequence[str], lanes: Sequence[int], end: float, left_out: list[str]
) -> dict[str, Any]:
    times, held, binned = _held(outcome, teams, end)
    if binned:
        left_out.append(f"GPUs over time under {name} are means over {MOST_STEPS:,} equal parts of it")
    jobs = [outcome.jobs[index] for index in lanes]
    decided = _decided(outcome.decided, [job.name for job in jobs])
    shown = decided[:MOST_DECISIONS]
    if len(shown) < len(decided):
        left_out.append(f"{len(shown):,} of {len(decided):,} decisions under {name} are told, the first ones")
    texts = list(dict.fromkeys(f"{each.reason}: {each.explanation}" for _, each in shown))
    places = {text: place for place, text in enumerate(texts)}
    return {
        "name": name,
        "times": times,
        "held": held,
        "spans": [[_span(part) for part in job.spans] for job in jobs],
        "ends": [None if job.ended_at is None else _round(job.ended_at) for job in jobs],
        "texts": texts,
        "decided": [
            [lane, _round(each.at), each.from_workers, each.to_workers, places[f"{each.reason}: {each.explanation}"]]
            for lane, each in shown
        ],
    }


def _span(part: Any) -> list[float]:
    return [_round(part.begin), _round(part.end), part.gpus, _round(part.lost_s)]


def _held(outcome: Outcome, teams: Sequence[str], end: float) -> tuple[list[float], list[list[float]], bool]:
    """Times, the GPUs of each team from each of them to the next, and whether these are means."""
    spans = [(span.begin, span.end, span.gpus, _index(_team(job), teams)) for job in outcome.jobs for span in job.spans]
    if not spans:
        return [0.0], [[0.0] for _ in teams], False
    begins, ends, gpus, owners = (np.array(column, dtype=float) for column in zip(*spans, strict=True))
    edges = np.unique(np.concatenate([[0.0, end], begins, ends]))
    binned = len(edges) > MOST_STEPS
    if binned:
        edges = np.linspace(0.0, end, MOST_STEPS + 1)
    held = []
    for team in range(len(teams)):
        own = owners == team
        area = _area(edges, begins[own], gpus[own]) - _area(edges, ends[own], gpus[own])
        held.append([_round(each) for each in np.diff(area) / np.diff(edges)] + [0.0])
    return [_round(each) for each in edges], held, binned


def _area(
    edges: np.ndarray[Any, np.dtype[np.float64]],
    moments: np.ndarray[Any, np.dtype[np.float64]],
    gpus: np.ndarray[Any, np.dtype[np.float64]],
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """For each edge, the sum of gpus · max(0, edge - moment)."""
    order = np.argsort(moments, kind="stable")
    count = np.searchsorted(moments[order], edges, side="right")
    weight = np.concatenate([[0.0], np.cumsum(gpus[order])])[count]
    moment = np.concatenate([[0.0], np.cumsum((gpus * moments)[order])])[count]
    area: np.ndarray[Any, np.dtype[np.float64]] = weight * edges - moment
    return area


def _decided(decided: Iterable[Decided], names: Sequence[str]) -> list[tuple[int, Decided]]:
    """The decisions on the jobs that are drawn, each with its lane."""
    lanes = {name: lane for lane, name in enumerate(names)}
    found = ((lanes.get(each.job, lanes.get(each.job.rpartition("/")[2])), each) for each in decided)
    return [(lane, each) for lane, each in found if lane is not None]


def _round(value: float) -> float:
    """With a digit that nobody sees in a picture of hours left out; whole numbers as such, for they are shorter."""
    rounded = round(float(value), 2)
    return int(rounded) if rounded.is_integer() else rounded
