# SPDX-License-Identifier: Apache-2.0
"""A process's log of operations: whole lines from any thread, and training never notices it."""

from __future__ import annotations

import os
import threading

import pytest

from kfp_volcano.elastic.runtime.events import Events, Kind
from kfp_volcano.schemas.events import read


def told(folder):
    """All events of a job folder."""
    return read({path.name: path.read_text().splitlines() for path in (folder / "events").glob("*.jsonl")})


def test_an_event_says_when_and_where_training_was(tmp_path):
    """Time, steps and samples are those of the moment it is added."""
    at = [(0, 0)]
    events = Events(tmp_path, owner="w-0-ab", position=lambda: at[0], clock=lambda: 12.5)
    events.add(Kind.STARTED, "began")
    at[0] = (3, 24)
    events.add(Kind.RESIZED, "2 workers instead of 1", from_workers=1, to_workers=2)
    events.close()
    first, second = told(tmp_path)
    assert (first.kind, first.time, first.owner, first.step, first.samples) == (Kind.STARTED, 12.5, "w-0-ab", 0, 0)
    assert (second.step, second.samples, second.facts) == (3, 24, {"from_workers": 1, "to_workers": 2})


def test_threads_do_not_mix_their_lines(tmp_path):
    """Every event of eight threads is there, whole."""
    events = Events(tmp_path, owner="w")
    threads = [
        threading.Thread(target=lambda name=name: [events.add(Kind.LEFT, name * 500, n=n) for n in range(50)])
        for name in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events.close()
    assert sorted((event.message[0], event.facts["n"]) for event in told(tmp_path)) == [
        (name, n) for name in "abcdefgh" for n in range(50)
    ]


def test_a_volume_that_refuses_is_said_once_and_raises_nothing(tmp_path, caplog):
    """Training is worth more than its log."""
    (tmp_path / "events").write_text("in the way")
    events = Events(tmp_path, owner="w")
    events.add(Kind.STARTED, "began")
    events.add(Kind.LEFT, "left")
    events.close()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"the log of operations cannot be written: [Errno 17] File exists: '{tmp_path / 'events'}'"
    ]


def test_a_line_after_one_that_was_cut_short_is_whole(tmp_path, monkeypatch):
    """A full disk tears one event, not the next."""
    events, write = Events(tmp_path, owner="w"), os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:10]))
    events.add(Kind.OUT_OF_MEMORY, "no room")
    monkeypatch.setattr(os, "write", write)
    events.add(Kind.CHECKPOINT_SAVED, "room again")
    events.close()
    assert [event.kind for event in told(tmp_path)] == [Kind.CHECKPOINT_SAVED]


def test_without_a_job_folder_events_go_to_the_processs_log(tmp_path, caplog, monkeypatch):
    """A plain `python train.py` writes nothing where nobody asked for it."""
    monkeypatch.chdir(tmp_path)
    with caplog.at_level("INFO"):
        Events(None, owner="w").add(Kind.STARTED, "began")
        Events(None, owner="w").add(Kind.LOSS_SPIKE, "the loss is high")
    told = [(record.levelname, record.message) for record in caplog.records]
    assert told == [("INFO", "Started: began"), ("WARNING", "LossSpike: the loss is high")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [object(), {1: float("nan")}, (1, 2)])
def test_odd_facts_do_not_raise(tmp_path, value):
    """Whatever a part tells is written in some form."""
    events = Events(tmp_path, owner="w")
    events.add(Kind.HANG, "hangs", value=value)
    events.close()
    assert len(told(tmp_path)) == 1


def test_facts_may_have_any_name(tmp_path):
    """Metrics are what training code calls them."""
    events = Events(tmp_path, owner="w")
    events.add(Kind.EVALUATED, "evaluated", kind=1.0, message=2.0)
    events.close()
    assert told(tmp_path)[0].facts == {"kind": 1.0, "message": 2.0}
