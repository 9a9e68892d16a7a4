# SPDX-License-Identifier: Apache-2.0
"""The story of a Job as lines of text."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.volcano.launcher.trace import Entry, Pace

__all__ = ["told"]


def told(job: str, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each entry, its reason and what training did after it indented below. Times are UTC."""
    if not entries:
        yield f"{job}: nothing has been written down yet"
        return
    day = _at(entries[0].time).date()
    yield f"{job}, {day} UTC"
    for entry in entries:
        at = _at(entry.time)
        clock = f"{at:%H:%M:%S}" if at.date() == day else f"{at:%Y-%m-%d %H:%M:%S}"
        step = "" if entry.step is None else f" step {entry.step}"
        yield f"{clock}{step} {entry.kind} ({entry.who}): {entry.what}"
        if entry.why:
            yield f"         because: {entry.why}"
        if entry.before is not None and entry.after is not None:
            yield f"         training: {_paced(entry.before)}; then {_paced(entry.after)}"


def _at(time: float) -> datetime:
    return datetime.fromtimestamp(time, tz=timezone.utc)


def _paced(pace: Pace) -> str:
    loss = "no finite loss" if pace.loss is None else f"loss {pace.loss:.4g}"
    speed = "" if pace.throughput is None else f" at {pace.throughput:,.0f} samples/s"
    return f"{loss}{speed} with {counted(pace.workers, 'worker')} ({counted(pace.steps, 'step')})"
