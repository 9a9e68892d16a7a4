# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kfp_volcano.cli import main
from kfpapi.server import KfpApi

PIPELINE = """
from kfp import dsl

@dsl.component(base_image="python:3.11")
def work(epochs: int): ...

@dsl.pipeline(name="small")
def small(epochs: int = 1):
    work(epochs=epochs)
"""


@pytest.fixture(name="schedule")
def _schedule(api: KfpApi, tmp_path: Path) -> Callable[..., Result]:
    """`kfp-volcano schedule …` at the backend; `PIPELINE` stands for the pipeline's file."""
    file = tmp_path / "small.py"
    file.write_text(PIPELINE)

    def schedule(*words: str) -> Result:
        words = tuple(str(file) if word == "PIPELINE" else word for word in words)
        return CliRunner().invoke(main, ["schedule", *words, "--host", api.url], env={"HOME": str(tmp_path)})

    return schedule


def test_a_schedule_s_life(schedule: Callable[..., Result], api: KfpApi):
    """Created, found unchanged, updated, paused, resumed, listed, deleted: each says what it came to."""
    create = (
        "create",
        "nightly",
        "PIPELINE",
        "--cron",
        "30 2 * * *",
        "--time-zone",
        "Asia/Tokyo",
        "--param",
        "epochs=2",
    )
    told = [
        schedule(*create),
        schedule(*create),
        schedule("update", "nightly", "--param", "epochs=3"),
        schedule("pause", "nightly"),
        schedule("resume", "nightly"),
        schedule("create", "often", "PIPELINE", "--every", "6h", "--paused"),
    ]
    assert [each.output.split()[-1] for each in told] == [
        "created",
        "unchanged",
        "updated",
        "paused",
        "resumed",
        "created",
    ]
    rows = {row["display_name"]: row for row in api.backend.rows["recurring_runs"].values()}
    assert rows["nightly"]["runtime_config"] == {"parameters": {"epochs": 3}}
    assert rows["often"]["trigger"] == {"periodic_schedule": {"interval_second": "21600"}}
    nightly, often = json.loads(schedule("list", "-o", "json").output)
    assert (nightly["name"], nightly["when"], nightly["enabled"]) == ("nightly", "0 30 2 * * * Asia/Tokyo", True)
    assert (often["name"], often["when"], often["enabled"]) == ("often", "every 6h", False)
    assert "nightly" in schedule("list").output
    assert [schedule("delete", "nightly", "--yes").output, schedule("delete", "nightly", "--yes").output] == [
        "schedule nightly: deleted\n",
        "schedule nightly: unchanged\n",
    ]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("create", "x", "PIPELINE"), 2, "--cron or --every"),
        (("create", "x", "PIPELINE", "--cron", "* * * * *", "--every", "1h"), 2, "not both"),
        (("create", "x", "PIPELINE", "--cron", "61 2 * * *"), 2, "minute '61'"),
        (("create", "x", "PIPELINE", "--every", "often"), 2, "no duration"),
        (("create", "x", "PIPELINE", "--every", "1.5s"), 2, "whole number"),
        (("create", "x", "PIPELINE", "--every", "9" * 30 + "d"), 2, "a century"),
        (("create", "x", "PIPELINE", "--every", "1h", "--time-zone", "UTC"), 2, "an interval has none"),
        (("create", "x", "PIPELINE", "--cron", "@daily", "--time-zone", "Mars/Base"), 2, "no time zone"),
        (("create", "x", "PIPELINE", "--every", "1h", "--param", f"epochs={2**53 + 1}"), 2, "beyond 2^53"),
        (("create", "x", "PIPELINE", "--every", "1h", "--experiment", " "), 2, "has a name"),
        (("create", "x", "PIPELINE", "--every", "1h", "--param", "epoch=1"), 2, "no such parameter"),
        (
            ("create", "x", "PIPELINE", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"),
            2,
            "CRON_SCHEDULE_TIMEZONE",
        ),
        (("pause", "x"), 3, "there is no schedule x"),
    ],
)
def test_what_is_wrong_is_said(schedule: Callable[..., Result], api: KfpApi, words, code, told):
    """One message, an exit code, and nothing made."""
    result = schedule(*words)
    assert (result.exit_code, told in result.output) == (code, True), result.output
    assert api.backend.rows["recurring_runs"] == {}
