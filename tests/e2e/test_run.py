# SPDX-License-Identifier: Apache-2.0
"""The main job end to end: a pipeline that trains elastically on this machine, and whatever is done to it."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Run

SHORT = ("--param", "epochs=12", "--param", "cooldown=3s")


def exact(result: dict[str, Any]) -> None:
    """Every sample was used exactly once an epoch."""
    assert result["state"] == "Succeeded", result
    assert (result["duplicates"], result["missing"]) == (0, 0)
    assert result["samples_seen"] == result["samples_expected"] > 0


def training(run: Run, steps: int = 20) -> bool:
    """Whether training has committed some steps."""
    return sum(path.read_text().count('"commit"') for path in run.out.glob("volumes/*/*/*/ledger/*.jsonl")) >= steps


@pytest.mark.slow
@pytest.mark.timeout(600)  # two runs
def test_a_run_grows_into_an_idle_queue_and_equals_a_run_of_fixed_size(start: Callable[..., Run]) -> None:
    """The resized run has the global batches and, step by step, the losses of one that never resizes."""
    elastic = start(*SHORT, "--param", "seed=3")
    assert elastic.end() == 0, elastic.output()
    elastic.gone()
    grown = elastic.result()
    exact(grown)
    assert grown["resizes"][0]["to"] > 2
    assert all(resize["steps_lost"] == 0 for resize in grown["resizes"])
    names = [step["name"] for step in grown["steps"]]
    assert names[:4] == ["submit", "train-1", "resize-1", "train-2"]
    assert names[-1] == "conclude"  # `collect` comes after it
    explained = CliRunner().invoke(main, ["autoscaler", "explain", grown["job"], "--decisions", str(elastic.out)])
    assert f"{grown['resizes'][0]['from']} -> {grown['resizes'][0]['to']} workers   QueueIdle" in explained.output
    assert "It has ended: Succeeded." in explained.output
    replayed = CliRunner().invoke(main, ["autoscaler", "replay", str(elastic.out)])
    assert replayed.exit_code == 0, replayed.output

    sizes = [f"{key}_workers=4" for key in ("initial", "min", "max")]
    fixed = start(*SHORT, "--param", "seed=3", *(part for size in sizes for part in ("--param", size)))
    assert fixed.end() == 0, fixed.output()
    steady = fixed.result()
    exact(steady)
    assert steady["resizes"] == []
    assert steady["batches_sha256"] == grown["batches_sha256"]
    first_epoch = [pair for pair in zip(grown["loss"], steady["loss"], strict=True) if pair[0][0] <= 1437]
    for (samples, loss), (same, other) in first_epoch:
        assert samples == same
        assert loss == pytest.approx(other, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["core-1", "coordinator", "autoscaler"])
def test_a_killed_part_comes_back_and_nothing_is_lost(victim: str, start: Callable[..., Run]) -> None:
    """kill -9 of a worker, of the coordinator or of the autoscaler in mid-run: the run ends well, the data is exact."""
    run = start(*SHORT)

    def found() -> list[psutil.Process]:
        if not training(run):
            return []
        if victim != "autoscaler":
            return run.pods(victim)
        return run.actors("Fleet")

    for process in run.wait_until(found, f"{victim} ran"):
        process.send_signal(signal.SIGKILL)
    assert run.end() == 0, run.output()
    exact(run.result())
    run.gone()


@pytest.mark.slow
@pytest.mark.parametrize(("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_nothing_is_alive_after_an_end_by_a_signal(
    signal_: signal.Signals, code: int, start: Callable[..., Run]
) -> None:
    """Ctrl-C, SIGTERM and kill -9 of the command: ten seconds later no process of it is alive."""
    run = start(*SHORT)
    run.wait_until(lambda: training(run), "training ran")
    run.process.send_signal(signal_)
    assert run.end() == code
    run.gone()


PIPELINE = """
from kfp import dsl
from kfp_volcano import elastic_training

SPEC = {{
    "apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {{"name": "t", "namespace": "n"}},
    "spec": {{
        "framework": "pytorch", "image": "i", "command": {command!r}, "queue": {queue!r},
        "roles": {{"worker": {{"replicas": {replicas!r}, "resources": {{"cpu": 1, "memory": "1Gi", "gpu": 1}}}}}},
        "elasticity": {{"strategy": "live", "batch": {{"global": 8}}}}, "checkpoint": {{"volume": "checkpoints"}},
        "faults": {{"retries": 1}},
    }},
}}

@dsl.pipeline(name="p")
def pipeline():
    elastic_training(SPEC, rounds=2, folder={folder!r})
"""


@pytest.mark.parametrize(
    ("changed", "arguments", "code", "words"),
    [
        pytest.param({"queue": "reserch"}, (), 2, ("queue", "reserch", "research"), marks=pytest.mark.slow),
        pytest.param({"replicas": 40}, (), 2, ("40", "8"), marks=pytest.mark.slow),
        ({"command": ["no-such-program"]}, (), 2, ("no-such-program",)),
        pytest.param(
            {}, ("--volume", "checkpoints=/proc/nowhere"), 2, ("checkpoints", "/proc/nowhere"), marks=pytest.mark.slow
        ),
        ({}, ("--nodes", "many"), 2, ("nodes", "2x4", "many")),
        (
            {"command": ["python", "-c", "raise ValueError('the data is gone')"]},
            (),
            1,
            ("ValueError: the data is gone",),
        ),
    ],
    ids=["unknown queue", "larger than the cluster", "no such program", "volume not writable", "bad nodes", "raises"],
)
def test_bad_input_ends_with_its_place_and_code(
    changed: dict[str, Any],
    arguments: tuple[str, ...],
    code: int,
    words: tuple[str, ...],
    start: Callable[..., Run],
    tmp_path: Path,
) -> None:
    """A message that names the place and the remedy, the right exit code, nothing left behind."""
    known = {
        "command": ["python", "-c", "pass"],
        "queue": "research",
        "replicas": {"min": 1, "max": 2},
        "folder": str(tmp_path),
    }
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE.format(**{**known, **changed}))
    run = start(*arguments, pipeline=path)
    assert run.end() == code, run.output()
    for word in words:
        assert word in run.output()
    assert code == 1 or "Traceback" not in run.output(), "only the user's own program may show one"
    run.gone()


@pytest.mark.slow
@pytest.mark.timeout(600)  # two runs
def test_a_run_is_taken_up_again_from_its_checkpoint(start: Callable[..., Run]) -> None:
    """After the command was killed, `--run-id` goes on where the checkpoint was, and the data is exact over both."""
    first = start(*SHORT, "--run-id", "again")
    first.wait_until(lambda: training(first, 200), "training was well under way")
    first.process.kill()
    first.end()
    first.gone()
    second = start(*SHORT, "--run-id", "again", "--out", first.out)
    assert second.end() == 0, second.output()
    second.out = first.out
    exact(second.result())
    losses = second.result()["loss"]
    assert all(before[0] < after[0] for before, after in pairwise(losses))
