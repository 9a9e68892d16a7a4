"""Workers of two processes each: to the others one worker, to the samples as many processes."""

from __future__ import annotations

import runpy
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.elastic.runtime.crew import BROKEN
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Job

SCRIPT = Path(__file__).with_name("sharded_worker.py")
EPOCHS = 40


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """What one process alone, which knows nothing of shards, makes of the training."""
    monkeypatch.setenv(names.ENV_JOB_DIR, str(tmp_path / "alone"))
    runpy.run_path(str(SCRIPT), {"EPOCHS": EPOCHS, "SHARDED": False})
    return final(tmp_path / "alone")


def final(folder: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(folder / "final" / "model.pt", weights_only=True)
    return loaded


def codes(job: Job, *pods: str) -> list[int | None]:
    return [job.exit_code(f"{pod}/{rank}") for pod in pods for rank in range(2)]


@pytest.mark.parametrize("sharded", [False, True])
def test_workers_of_two_processes_join_leave_and_die(
    make_job: Callable[..., Job], weights: dict[str, Any], *, sharded: bool
) -> None:
    """Each sample once and the weights of one process alone; a process that dies takes its sibling along, no other."""
    job = make_job(epochs=EPOCHS)
    more = {"script": SCRIPT, "SHARDED": sharded}
    for pod in ("w-0", "w-1"):
        job.start(pod, 2, **more)
    job.wait_for_steps(5, world=4)
    job.start("w-2", 2, **more)
    job.wait_for_steps(5, world=6)
    job.signal("w-0/0", signal.SIGTERM)  # the other learns of it
    assert codes(job, "w-0") == [LEFT, LEFT]
    job.wait_for_steps(5, world=4)
    job.kill("w-1/1")
    assert job.exit_code("w-1/0") == BROKEN
    job.wait_for_steps(5, world=2)
    job.start("w-1", 2, **more)
    assert codes(job, "w-1", "w-2") == [0] * 4
    audit = job.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert {(commit.world, commit.workers) for commit in audit.commits} >= {(4, 2), (6, 3), (2, 1)}
    assert len(audit.lost) <= 1
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)


def test_checkpoints_of_shards_go_on_in_any_number_of_processes(
    make_job: Callable[..., Job], weights: dict[str, Any]
) -> None:
    """Two processes that share a model leave a checkpoint, from which one alone, without shards, goes on."""
    job = make_job(epochs=EPOCHS)
    job.start("w-0", 2, script=SCRIPT)
    job.wait_for_steps(20, world=2)
    for rank in range(2):
        job.signal(f"w-0/{rank}", signal.SIGTERM)
    assert codes(job, "w-0") == [LEFT, LEFT]
    job.start("w-1", script=SCRIPT, SHARDED=False)
    assert job.exit_code("w-1") == 0
    audit = job.audit()
    assert (audit.problems, audit.lost) == ((), ())
    assert {commit.world for commit in audit.commits} == {1, 2}
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)
