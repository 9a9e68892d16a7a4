# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's log: a Recorder that tells what changes, and the forms in which log lines are written.

A line of JSON holds `time` (RFC 3339), `level`, `logger` and `message`, and where it is about one `queue`, `job`,
`reason`, `request`, `policy` or `actor`, that.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, TextIO

from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome

__all__ = ["LogFormat", "Narrator", "formatter", "log_to"]

LogFormat = Literal["json", "text"]

_FIELDS = ("queue", "job", "reason", "request", "policy", "actor")
_TEXT = "%(asctime)s %(name)s: %(message)s"

_log = logging.getLogger(__name__)


class Narrator:
    """Logs requests, what became of them, and turns that failed; nothing for a Job that stays as it is."""

    def decided(
        self,
        snapshot: QueueSnapshot,
        decisions: Sequence[Decision],
        requests: Mapping[str, str],
        *,
        lag_s: float,  # noqa: ARG002 - of metrics alone
    ) -> None:
        """See `Recorder.decided`."""
        for each in decisions:
            if each.job in requests:
                said = {"queue": snapshot.queue, "job": each.job, "reason": each.reason.value, "policy": each.policy}
                text = f"{each.job}: {each.from_workers} to {counted(each.to_workers, 'worker')}: {each.explanation}"
                _log.info(text, extra={**said, "request": requests[each.job]})

    def resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:
        """See `Recorder.resized`."""
        said = {"queue": queue, "job": job, "reason": outcome.reason, "request": outcome.id}
        size, end = f"{outcome.from_workers} to {counted(outcome.to_workers, 'worker')}", outcome.phase.value
        _log.info("%s: %s: %s", job, size, ": ".join(filter(None, (end, outcome.message))), extra=said)

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:
        """See `Recorder.reranked`."""
        said = {"queue": queue, "job": job, "reason": change.reason}
        _log.info("%s: %s to %s: %s", job, change.from_class, change.to_class, change.explanation, extra=said)

    def ended(self, queue: str, end: JobEnd) -> None:
        """See `Recorder.ended`."""
        took = f"{end.ended_at - end.created_at:.0f} s"
        _log.info("%s: %s after %s", end.job, end.state, took, extra={"queue": queue, "job": end.job})

    def failed(self, queue: str, error: Exception) -> None:
        """See `Recorder.failed`."""
        _log.warning("queue %s: %s", queue, error, extra={"queue": queue, "reason": type(error).__name__})


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
        line["message"] = record.getMessage()
        line |= {name: str(getattr(record, name)) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def formatter(form: LogFormat) -> logging.Formatter:
    """What makes lines of that form."""
    return _JsonLines() if form == "json" else logging.Formatter(_TEXT)


def log_to(handler: logging.Handler | None, form: LogFormat, stream: TextIO = sys.stderr) -> None:
    """Send this process's log to a handler, by default one that writes to a stream, and nowhere else."""
    handler = handler or logging.StreamHandler(stream)
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
