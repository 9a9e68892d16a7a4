# SPDX-License-Identifier: Apache-2.0
"""The log: what is told, and how its lines read."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kfp_volcano.elastic.autoscaler.telling.narration import Narrator, log_to
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.errors import UnavailableError
from told import decision, outcome, snapshot


@pytest.fixture(name="lines")
def _lines() -> Iterator[io.StringIO]:
    """What is logged as JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    log_to(None, "json", stream)
    yield stream
    root.handlers[:], root.level = handlers, level


def test_a_request_is_a_line_with_its_numbers_and_names(lines: io.StringIO) -> None:
    """Programs find queue, Job, reason and request without reading the sentence; what stays is no line."""
    grow = decision("ml/digits", 8, Reason.QUEUE_IDLE)
    Narrator().decided(snapshot(), [grow, decision("ml/other")], {"ml/digits": "r1"}, lag_s=0.0)
    [line] = map(json.loads, lines.getvalue().splitlines())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "kfp_volcano.elastic.autoscaler.telling.narration",
        "message": "ml/digits: 3 to 8 workers: because of QueueIdle",
        "queue": "research",
        "job": "ml/digits",
        "reason": "QueueIdle",
        "request": "r1",
        "policy": "threshold",
    }


def test_ends_and_failures_are_lines(lines: io.StringIO) -> None:
    """A resize's end by its request, a failed turn by its error."""
    narrator = Narrator()
    narrator.resized("research", "ml/digits", outcome())
    narrator.failed("research", UnavailableError("no answer"))
    done, failed = map(json.loads, lines.getvalue().splitlines())
    assert (done["request"], done["queue"], "Done" in done["message"]) == ("r1", "research", True)
    assert (failed["level"], failed["reason"]) == ("warning", "UnavailableError")


def test_a_line_is_one_line_whatever_is_in_it(lines: io.StringIO) -> None:
    """A traceback and line breaks stay inside of the JSON."""
    try:
        int("two\nlines")
    except ValueError:
        logging.getLogger("other").exception("it\nfailed")
    [line] = map(json.loads, lines.getvalue().splitlines())
    assert line["message"] == "it\nfailed"
    assert "invalid literal" in line["exception"]
