# SPDX-License-Identifier: Apache-2.0
"""The decision log: what is written, what is read, and that it can be decided again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.decisions.decision_log import ACCOUNTS_S, LOG_NAME, DecisionLog, core
from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_files, log_lines
from kfp_volcano.elastic.autoscaler.decisions.log_turns import log_folders, replay, turns
from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.policy import Decision
from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import DEFAULT, QueuePolicy
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.schemas.records import Hold, Phase, ResizeOutcome

AT = 1_790_000_000.0


def job(name: str, workers: int = 2, **fields: Any) -> ElasticJob:
    """A Job of one to eight workers with a GPU each."""
    size = {"running": workers, "min_workers": 1, "max_workers": 8, "sizes": (1, 2, 4, 8), "gpus_per_worker": 1}
    return ElasticJob(key=f"ml/{name}", workers=workers, nodes=("n1",) * workers, **{**size, **fields})


def queue(*jobs: ElasticJob, at: float = AT, name: str = "research", free: int = 8, **fields: Any) -> QueueSnapshot:
    """A queue with these Jobs."""
    held = sum(each.workers for each in jobs)
    kept = {"limit_gpus": held + free, "allocated_gpus": held, "nodes": {"n1": NodeState(free=free)}}
    return QueueSnapshot(queue=name, at=at, **{**kept, **fields}, jobs=tuple(sorted(jobs, key=lambda each: each.key)))


class Autoscaler:
    """Decides by a Policy, and writes its log; a process that is killed leaves its file to the system."""

    running: list[Autoscaler] = []  # noqa: RUF012 - ended by a fixture

    def __init__(self, folder: Path, spec: QueuePolicy = DEFAULT, **options: Any) -> None:
        self.spec = spec
        self.log = DecisionLog(folder, policies=lambda _: self.spec, by="me", clock=lambda: AT, **options)
        self.running.append(self)

    def kill(self) -> None:
        self.log._lines.close()

    def turn(self, snapshot: QueueSnapshot, **requests: str) -> tuple[Decision, ...]:
        decisions = policy_for(self.spec).decide(snapshot)
        self.log.decided(snapshot, decisions, requests, lag_s=0.01)
        return decisions


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    while Autoscaler.running:
        Autoscaler.running.pop().kill()


def lines(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    """The lines of a kind."""
    return [line for line in log_lines(folder, LOG_NAME) if kind in {"", line["kind"]}]


def test_a_log_holds_what_was_seen_and_decided(tmp_path: Path) -> None:
    """Exactly, and the request that a decision led to."""
    scaler = Autoscaler(tmp_path)
    seen = [queue(job("a"), job("b")), queue(job("a", 4), at=AT + 5), queue(job("a", 4), job("c"), at=AT + 9)]
    decided = [scaler.turn(each, **{"ml/a": f"r{index}"}) for index, each in enumerate(seen)]
    found = list(turns(log_lines(tmp_path, LOG_NAME)))
    assert [turn.snapshot for turn in found] == seen
    assert [tuple(map(core, turn.decisions.values())) for turn in found] == [tuple(map(core, each)) for each in decided]
    assert [turn.requests for turn in found] == [{"ml/a": "r0"}, {"ml/a": "r1"}, {"ml/a": "r2"}]
    assert lines(tmp_path, "policy")[0]["document"] == DEFAULT.document


def test_a_turn_in_which_nothing_relevant_changed_is_not_written(tmp_path: Path) -> None:
    """However often it is looked; what has changed beside comes with the next turn that is."""
    scaler = Autoscaler(tmp_path)
    for second in range(20):
        scaler.turn(queue(job("a", remaining_s=500.0 - second), at=AT + second))
    assert len(lines(tmp_path, "turn")) == 1
    scaler.turn(queue(job("a", remaining_s=77.0, hold=Hold(until=AT + 99, by="ada")), at=AT + 30))
    assert lines(tmp_path, "turn")[1]["seen"]["jobs"]["ml/a"]["remaining_s"] == 77.0
    assert replay(tmp_path).differences == []


@st.composite
def histories(draw: Callable[..., Any]) -> list[QueueSnapshot]:
    """A queue over some turns: Jobs come, change and go, gangs wait."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    jobs: dict[str, ElasticJob] = {}
    found = []
    for turn in range(draw(st.integers(1, 12))):
        for name in "abcd":
            kind = rng.random()
            if kind < 0.3:
                hold = Hold(until=AT + rng.randint(0, 100), by="ada") if rng.random() < 0.3 else None
                last = AT + turn * 10 - rng.choice([5, 500])
                size = rng.choice([1, 2, 4, 8])
                jobs[name] = job(name, size, hold=hold, last_resize_at=last, priority=rng.randint(0, 2))
            elif kind < 0.4:
                jobs.pop(name, None)
        gangs = (PendingGang(key="x/g", pods=(1,) * rng.randint(1, 6), since=AT),) if rng.random() < 0.4 else ()
        found.append(queue(*jobs.values(), at=AT + turn * 10, free=rng.choice([0, 0, 3, 20]), pending=gangs))
    return found


EXPERIMENT = policy(
    {
        "apiVersion": "kfp-volcano/v1",
        "kind": "Policy",
        "metadata": {"name": "compare"},
        "spec": {"queues": ["*"], "arms": [{"name": "a"}, {"name": "b", "share": 2}]},
    }
)


@given(histories=st.lists(histories(), min_size=1, max_size=3), most_bytes=st.sampled_from([500, 4000, 10**6]))
@settings(max_examples=25)
def test_a_log_is_decided_again_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, histories: list[list[QueueSnapshot]], most_bytes: int
) -> None:
    """Over files that follow each other, processes that begin anew, queues side by side, and Policies that change."""
    folder = tmp_path_factory.mktemp("log")
    count = 0
    for number, history in enumerate(histories):
        scaler = Autoscaler(folder, most_bytes=most_bytes, most_files=1000)
        for index, snapshot in enumerate(history):
            scaler.spec = EXPERIMENT if index > len(history) // 2 else DEFAULT
            scaler.turn(snapshot)
            scaler.turn(replace(snapshot, queue=f"other-{number}"))
            count += 1
        scaler.log.close()
    found = replay(folder)
    assert found.differences == []
    assert 0 < found.turns <= 2 * count


def test_a_decision_that_comes_out_otherwise_is_found(tmp_path: Path) -> None:
    """With what was logged and what is decided now: here somebody has changed a number in the log."""
    scaler = Autoscaler(tmp_path)
    scaler.turn(queue(job("a"), free=14))
    (path,) = log_files(tmp_path, LOG_NAME)
    path.write_text(path.read_text().replace('"free":14', '"free":4'))
    (found,) = replay(tmp_path).differences
    assert (found.queue, found.job) == ("research", "ml/a")
    assert found.logged is not None
    assert found.decided is not None
    assert (found.logged.to_workers, found.decided.to_workers) == (8, 2)


@pytest.mark.parametrize("most_files", [3, 7])
def test_files_follow_each_other_and_the_oldest_go(tmp_path: Path, most_files: int) -> None:
    """As many as are to be kept stay, and each can be read without those before it."""
    scaler = Autoscaler(tmp_path, most_bytes=2000, most_files=most_files)
    for turn in range(40):
        scaler.turn(queue(job("a", 2 if turn % 2 else 4), job("b"), at=AT + turn))
    files = log_files(tmp_path, LOG_NAME)
    assert len(files) == most_files
    assert files[0].name != "decisions-000001.jsonl"
    assert all(json.loads(path.read_text().splitlines()[0])["kind"] == "begin" for path in files)
    assert all(path.stat().st_size < 4000 for path in files)
    found = replay(tmp_path)
    assert found.differences == []
    assert list(turns(log_lines(tmp_path, LOG_NAME)))[-1].snapshot.at == AT + 39


@pytest.mark.parametrize(("torn", "read"), [(1, [AT, AT + 1, AT + 2]), (2, [AT, AT + 2]), (60, [AT, AT + 2])])
def test_a_line_that_was_torn_harms_no_other(tmp_path: Path, torn: int, read: list[float]) -> None:
    """A writer was killed in the middle of it; the next one goes on behind it."""
    scaler = Autoscaler(tmp_path)
    scaler.turn(queue(job("a")))
    scaler.turn(queue(job("a", 4), at=AT + 1))
    (path,) = log_files(tmp_path, LOG_NAME)
    path.write_bytes(path.read_bytes()[:-torn])
    Autoscaler(tmp_path).turn(queue(job("a", 8), at=AT + 2))
    found = list(turns(log_lines(tmp_path, LOG_NAME)))
    assert [turn.snapshot.at for turn in found] == read
    assert replay(tmp_path).differences == []


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """It begins anew as soon as it can, whole."""
    folder = tmp_path / "log"
    folder.write_text("a file is in its place")
    scaler = Autoscaler(folder)
    scaler.turn(queue(job("a")))
    scaler.log.ended("research", JobEnd(job="ml/a", state="Succeeded", created_at=AT, ended_at=AT + 9))
    folder.unlink()
    scaler.turn(queue(job("a", 4), at=AT + 1))
    assert [line["kind"] for line in lines(folder)] == ["begin", "accounts", "policy", "turn"]
    assert replay(folder).differences == []


def test_what_fails_again_and_again_is_written_once(tmp_path: Path) -> None:
    """Until something else happens."""
    scaler = Autoscaler(tmp_path)
    for _ in range(3):
        scaler.log.failed("research", ValueError("no answer"))
    scaler.turn(queue(job("a")))
    scaler.log.failed("research", ValueError("no answer"))
    assert [line["error"] for line in lines(tmp_path, "failed")] == ["ValueError: no answer"] * 2


def test_a_job_that_has_ended_is_accounted_for(tmp_path: Path) -> None:
    """GPU seconds of the workers that ran, its resizes, its arm; over a process that was killed in between."""
    scaler = Autoscaler(tmp_path, EXPERIMENT)
    scaler.turn(queue(job("a", 2)))
    scaler.turn(queue(job("a", 4), at=AT + 100))
    size = {"from_workers": 2, "to_workers": 4, "reason": "QueueIdle", "explanation": ""}
    outcome = ResizeOutcome(id="r", phase=Phase.DONE, requested_at=AT, executed_by="me", **size)
    scaler.log.resized("research", "ml/a", outcome)
    scaler.turn(queue(job("a", 4), at=AT + ACCOUNTS_S))
    scaler.turn(queue(job("a", 4, running=3), at=AT + ACCOUNTS_S + 1))
    again = Autoscaler(tmp_path, EXPERIMENT)
    again.turn(queue(job("a", 4, running=3), at=AT + ACCOUNTS_S + 10))
    end = {"job": "ml/a", "state": "Succeeded", "created_at": AT - 50, "loss": 0.25}
    again.log.ended("research", JobEnd(**end, ended_at=AT + ACCOUNTS_S + 20))
    (line,) = lines(tmp_path, "ended")
    assert line["gpu_s"] == pytest.approx(2 * 100 + 4 * (ACCOUNTS_S - 100) + 4 + 3 * 19, abs=20)
    assert line == {
        "kind": "ended",
        "queue": "research",
        "experiment": "compare",
        "arm": "b",
        "resizes": 1,
        "since": AT,
        "gpu_s": line["gpu_s"],
        **end,
        "ended_at": AT + ACCOUNTS_S + 20,
    }


def test_folders_with_logs_are_found_below_a_path(tmp_path: Path) -> None:
    """Each autoscaler has its own; where there is none, that is an error."""
    with pytest.raises(SpecError, match="no decision log"):
        log_folders(tmp_path)
    Autoscaler(tmp_path / "one").turn(queue(job("a")))
    Autoscaler(tmp_path / "two" / "three").turn(queue(job("a")))
    assert log_folders(tmp_path) == [tmp_path / "one", tmp_path / "two" / "three"]
