# SPDX-License-Identifier: Apache-2.0
"""What a page needs to draw simulations: compact, and of a bounded size however many jobs there were. Pure.

Times are whole numbers of `unit` seconds from the first submission.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.launcher.simulation_series import MOST_STEPS, gpus_held

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome

__all__ = ["MOST_DECISIONS", "MOST_JOBS", "MOST_SPANS", "MOST_TEAMS", "Picture", "picture"]

MOST_JOBS = 3000
MOST_SPANS = 90_000
"""Of all jobs under all policies together."""
MOST_DECISIONS = 6000
"""Of all policies together."""
MOST_TEAMS = 6
"""With a colour of their own."""
_MOST_TICKS = 1_000_000
"""Units of time that the whole is cut into at most: no screen shows more."""
_LONGEST_NAME = 80
_LONGEST_TEXT = 400
OTHERS = "other teams"


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, and what is not."""

    data: dict[str, Any]
    """For the page's script, as JSON takes it."""
    teams: tuple[str, ...]
    """In the order of their colours; with more than `MOST_TEAMS`, the last stands for all others."""
    left_out: tuple[str, ...]
    """What there is and the picture does not show, a sentence each."""


def picture(names: Sequence[str], outcomes: Sequence[Outcome]) -> Picture:
    """Take what can be drawn from outcomes of one scenario.

    Args:
        names: Of the policies, as they are shown.
        outcomes: Under them, with the same jobs in the same order.
    """
    jobs = outcomes[0].jobs if outcomes else ()
    begin = min((job.submitted_at for job in jobs), default=0.0)
    ends = [job.ended_at for outcome in outcomes for job in outcome.jobs if job.ended_at is not None]
    end = max([begin, *ends, *(each.ended_at for each in outcomes)])
    scale = _Scale(begin, _unit(end - begin))
    teams, bands = _teams(outcomes)
    kept = _kept(outcomes)
    place = {jobs[index].name: row for row, index in enumerate(kept)}
    texts: dict[str, int] = {}
    shares = MOST_DECISIONS // max(1, len(outcomes))
    series = [gpus_held(each, bands, begin=begin, end=end) for each in outcomes]
    told = [[each for each in outcome.decided if each.job in place] for outcome in outcomes]
    policies = [
        {
            "name": _cut(name, _LONGEST_NAME),
            "end": scale.of(outcome.ended_at),
            "times": [scale.of(time) for time in held.times],
            "bands": [_plain(band) for band in held.bands],
            "waiting": _plain(held.waiting),
            "jobs": [_job(outcome.jobs[index], scale) for index in kept],
            "decided": [
                [scale.of(one.at), place[one.job], one.from_workers, one.to_workers, _text(one.reason, texts),
                 _text(one.explanation, texts)]
                for one in decided[:shares]
            ],
        }
        for name, outcome, held, decided in zip(names, outcomes, series, told, strict=True)
    ]  # fmt: skip
    data = {
        "unit": scale.unit,
        "end": scale.of(end),
        "gpus": max((each.gpus for each in outcomes), default=0),
        "teams": [_cut(team, _LONGEST_NAME) for team in teams],
        "jobs": [
            [_cut(jobs[index].name, _LONGEST_NAME), bands.get(jobs[index].team, len(teams) - 1),
             scale.of(jobs[index].submitted_at), jobs[index].asked_gpus]
            for index in kept
        ],
        "policies": policies,
        "texts": list(texts),
    }  # fmt: skip
    left_out = []
    if len(kept) < len(jobs):
        left_out.append(
            f"{len(kept):,} of {len(jobs):,} jobs are drawn and listed: in turn those that held most GPU time and "
            "those whose completion time differs most between policies. Figures and GPUs over time are of all jobs."
        )
    if not all(each.exact for each in series):
        left_out.append(f"GPUs over time are means over {MOST_STEPS:,} equal times.")
    if (missing := sum(max(0, len(each) - shares) for each in told)) > 0:
        left_out.append(f"{missing:,} later decisions are not shown: of each policy the first {shares:,} are.")
    if len(teams) > MOST_TEAMS:
        left_out.append(f"The {MOST_TEAMS} teams that held most GPU time have a colour each, all others one.")
    return Picture(data, teams, tuple(left_out))


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: float
    unit: float

    def of(self, seconds: float) -> int:
        return round((seconds - self.begin) / self.unit)


def _unit(span: float) -> float:
    """The least power of ten, from a millisecond on, that cuts the span into few enough ticks."""
    power = next(power for power in range(-3, 300) if span <= _MOST_TICKS * 10.0**power)
    return 10.0**power


def _teams(outcomes: Sequence[Outcome]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The teams by the GPU time they held, and the colour of each that has its own."""
    held: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        for job in outcome.jobs:
            held[job.team] += job.gpu_s
    ranked = sorted(held, key=lambda team: (-held[team], team))
    if len(ranked) <= MOST_TEAMS:
        return tuple(ranked), {team: band for band, team in enumerate(ranked)}
    bands = {team: band for band, team in enumerate(ranked[:MOST_TEAMS])} | dict.fromkeys(
        ranked[MOST_TEAMS:], MOST_TEAMS
    )
    return (*ranked[:MOST_TEAMS], OTHERS), bands


def _kept(outcomes: Sequence[Outcome]) -> list[int]:
    """Which jobs are drawn, in the scenario's order: as many as `MOST_JOBS` and `MOST_SPANS` allow."""
    under = list(zip(*(outcome.jobs for outcome in outcomes), strict=True))
    spans = [sum(len(job.spans) for job in jobs) for jobs in under]
    if len(under) <= MOST_JOBS and sum(spans) <= MOST_SPANS:
        return list(range(len(under)))
    held = [sum(job.gpu_s for job in jobs) for jobs in under]
    apart = [_apart(jobs) for jobs in under]
    largest = sorted(range(len(under)), key=lambda index: -held[index])
    differing = sorted(range(len(under)), key=lambda index: -apart[index])
    kept: set[int] = set()
    used = 0
    for index in (each for pair in zip(largest, differing, strict=True) for each in pair):
        if len(kept) == MOST_JOBS:
            break
        if index not in kept and used + spans[index] <= MOST_SPANS:
            kept.add(index)
            used += spans[index]
    return sorted(kept)


def _apart(jobs: Iterable[JobOutcome]) -> float:
    """How far the completion times of a job are apart."""
    times = [job.jct for job in jobs if job.jct is not None]
    return max(times) - min(times) if times else 0.0


def _job(job: JobOutcome, scale: _Scale) -> list[Any]:
    """Completion time in seconds, end, resizes, restarts, and (begin, end, GPUs, lost) of its spans in one list."""
    spans: list[int] = []
    for span in job.spans:
        spans += (scale.of(span.begin), scale.of(span.end), span.gpus, round(span.lost_s / scale.unit))
    ended = None if job.ended_at is None else scale.of(job.ended_at)
    return [None if job.jct is None else round(job.jct, 3), ended, job.resizes, job.restarts, spans]


def _text(text: str, texts: dict[str, int]) -> int:
    return texts.setdefault(_cut(text, _LONGEST_TEXT), len(texts))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(values: Sequence[float]) -> list[float]:
    """Whole numbers without a point."""
    return [int(value) if value == int(value) else value for value in values]
