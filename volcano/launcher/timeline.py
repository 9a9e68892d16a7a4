# SPDX-License-Identifier: Apache-2.0
"""What happened in the queue, read from the autoscaler's timeline (`queue.jsonl`).

A series is a list of [time, value] steps: the value holds from its time until the next entry's. Times are Unix seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["gpus", "other_gangs", "queue_lines", "steps_of", "workers"]


def queue_lines(timeline: Iterable[dict[str, Any]], queue: str) -> list[dict[str, Any]]:
    """The lines that tell the state of one queue, oldest first, even if written out of order."""
    lines = [line for line in timeline if line.get("kind") == "queue" and line.get("queue") == queue]
    return sorted(lines, key=lambda line: float(line["time"]))


def gpus(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """GPUs of the queue over time: `limit`, `waiting` (asked for by pods that wait) and `teams`, a series each."""
    teams = sorted({str(job["team"]) for line in lines for job in line["jobs"]})
    return {
        "limit": steps_of((line["time"], line["limit"]) for line in lines),
        "waiting": steps_of((line["time"], sum(job["pending_gpus"] for job in line["jobs"])) for line in lines),
        "teams": {
            team: steps_of(
                (line["time"], sum(job["gpus"] for job in line["jobs"] if job["team"] == team)) for line in lines
            )
            for team in teams
        },
    }


def workers(lines: Sequence[dict[str, Any]], job: str) -> list[list[float]]:
    """Workers of one Job over time, as the queue saw them."""
    found = ((line["time"], entry.get("workers")) for line in lines for entry in line["jobs"] if entry["job"] == job)
    return steps_of((time, count) for time, count in found if count is not None)


def other_gangs(lines: Sequence[dict[str, Any]], team: str) -> list[dict[str, Any]]:
    """The gangs of other teams that had to wait for GPUs, in the order they were first seen.

    Each is {job, team, gpus, submitted, started, ended}. `submitted` is when the queue first held it, `started` when
    none of its GPUs was pending any more, `ended` when it held none again; None for what did not happen.
    """
    gangs: dict[str, dict[str, Any]] = {}
    waited: set[str] = set()
    for line in lines:
        present = {job["job"]: job for job in line["jobs"] if job["team"] != team}
        for key, job in present.items():
            gang = gangs.setdefault(
                key,
                {"job": key, "team": job["team"], "gpus": 0, "submitted": line["time"], "started": None, "ended": None},
            )
            gang["gpus"] = max(gang["gpus"], job["gpus"] + job["pending_gpus"])
            if job["pending_gpus"]:
                waited.add(key)
            elif job["gpus"] and gang["started"] is None:
                gang["started"] = line["time"]
        for key, gang in gangs.items():
            job = present.get(key)
            over = job is None or (gang["started"] is not None and not job["gpus"] and not job["pending_gpus"])
            if over and gang["ended"] is None:
                gang["ended"] = line["time"]
    return [gang for key, gang in gangs.items() if key in waited]


def steps_of(points: Iterable[tuple[float, float]]) -> list[list[float]]:
    """A series that names only the moments at which its value changed."""
    series: list[list[float]] = []
    for time, value in points:
        if not series or series[-1][1] != value:
            series.append([time, value])
    return series
