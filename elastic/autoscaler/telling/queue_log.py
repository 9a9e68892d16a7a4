# SPDX-License-Identifier: Apache-2.0
"""The timeline of a queue on disk: `queue.jsonl`, one JSON object a line, written by the leading autoscaler.

Two kinds of lines, times in Unix seconds; a line is written only when something in it has changed::

    {"kind": "queue", "time": …, "queue": "research", "limit": 8, "allocated": 6,
     "jobs": [{"job": "ns/name", "team": "vision", "gpus": 6, "pending_gpus": 0, "phase": "Running", "workers": 6}]}
    {"kind": "decision", "time": …, "job": "ns/name", "from": 2, "to": 8, "reason": "QueueIdle",
     "explanation": "…", "policy": "threshold", "request": "4f0c…" | null}
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.elastic.policies.policy import Decision

__all__ = ["QueueLog"]

_log = logging.getLogger(__name__)


class QueueLog:
    """Appends to the timeline; that it cannot be written stops nobody from scaling."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "queue.jsonl"
        self._entries: dict[str, dict[str, Any]] = {}
        self._decisions: dict[tuple[str, str], tuple[int, int, str, str]] = {}
        self._started = False

    def queue(self, entry: dict[str, Any]) -> None:
        """Note the state of the queue, if it is another than the last one."""
        without_time = {key: value for key, value in entry.items() if key != "time"}
        if without_time != self._entries.get(entry["queue"]):
            self._entries[entry["queue"]] = without_time
            self._append(entry)

    def decision(self, queue: str, decision: Decision, now: float, request: str | None) -> None:
        """Note a decision, if it differs from the last one for its Job, or led to a request."""
        said = (decision.from_workers, decision.to_workers, decision.reason.value, decision.policy)
        if request is None and self._decisions.get((queue, decision.job)) == said:
            return
        self._decisions[queue, decision.job] = said
        self._append(
            {
                "kind": "decision",
                "time": now,
                "job": decision.job,
                "from": decision.from_workers,
                "to": decision.to_workers,
                "reason": decision.reason.value,
                "explanation": decision.explanation,
                "policy": decision.policy,
                "request": request,
            }
        )

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        try:
            if not self._started:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                text = self._end_torn_line() + text
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
            self._started = True
        except OSError as error:
            _log.warning("the queue's timeline %s cannot be written: %s", self._path, error)

    def _end_torn_line(self) -> str:
        """A line break, where the writer before was killed in the middle of a line."""
        if not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 1))
            return "\n" if file.read(1) not in {b"", b"\n"} else ""
