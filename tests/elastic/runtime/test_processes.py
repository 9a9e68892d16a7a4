# SPDX-License-Identifier: Apache-2.0
"""Workers of two processes each: to the others one worker, to the samples as many processes."""

from __future__ import annotations

import runpy
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.elastic.runtime.checkpoints import Manifest
from kfp_volcano.elastic.runtime.crew import BROKEN
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Job

SCRIPT = Path(__file__).with_name("sharded_worker.py")
EPOCHS = 40


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """What one process alone, which knows nothing of shards, makes of the training."""
    return train_alone(tmp_path / "alone", monkeypatch)


def train_alone(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, torch.Tensor]:
    """The weights of a training by one process."""
    monkeypatch.setenv(names.ENV_JOB_DIR, str(folder))
    runpy.run_path(str(SCRIPT), {"EPOCHS": EPOCHS, "SHARDED": False, **more})
    return final(folder)


def final(folder: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(folder / "final" / "model.pt", weights_only=True)
    return loaded


def manifests(folder: Path) -> list[Manifest]:
    return [Manifest.parse(path.read_bytes()) for path in sorted(folder.glob("step-*/manifest.json"))]


def codes(job: Job, *pods: str) -> list[int | None]:
    return [job.exit_code(f"{pod}/{rank}") for pod in pods for rank in range(2)]


@pytest.mark.parametrize(
    ("sharded", "most"), [(False, None), (True, None), pytest.param(True, 2, marks=pytest.mark.slow)]
)
def test_workers_of_two_processes_join_leave_and_die(
    make_job: Callable[..., Job], weights: dict[str, Any], *, sharded: bool, most: int | None
) -> None:
    """Each sample once and the weights of one process alone; a process that dies takes its sibling along, no other.

    Also where shares are fed in parts, of which one process may have fewer than samples to fill them.
    """
    job = make_job(epochs=EPOCHS)
    more = {"script": SCRIPT, "SHARDED": sharded, "MOST": most}
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


def stop(job: Job, pod: str, processes: int) -> None:
    """Let a worker that is alone leave a checkpoint and go."""
    job.signal(f"{pod}/{processes - 1}" if processes > 1 else pod, signal.SIGTERM)
    assert {job.exit_code(f"{pod}/{rank}") for rank in range(processes)} == {LEFT}


@pytest.mark.parametrize("behind_url", [False, True])
def test_checkpoints_of_shards_go_on_in_any_number_of_processes(
    make_job: Callable[..., Job], weights: dict[str, Any], tmp_path: Path, *, behind_url: bool
) -> None:
    """Two processes that share a model leave each its shards; three go on from them, and one alone, without shards."""
    place = tmp_path / "store" if behind_url else tmp_path / "job-0" / "checkpoints"
    job = make_job(epochs=EPOCHS, checkpoint_url=place.as_uri() if behind_url else None)
    for pod, processes in (("w-0", 2), ("w-1", 3)):
        job.start(pod, processes, script=SCRIPT)
        job.wait_for_steps(20, world=processes)
        stop(job, pod, processes)
        newest = manifests(place)[-1]
        assert newest.layout == "sharded"
        assert len([name for name in newest.files if name.endswith(".distcp")]) == processes
    job.start("w-2", script=SCRIPT, SHARDED=False)
    assert job.exit_code("w-2") == 0
    audit = job.audit()
    assert (audit.problems, audit.lost, audit.duplicates, audit.missing) == ((), (), 0, 0)
    assert {commit.world for commit in audit.commits} == {1, 2, 3}
    assert manifests(place)[-1].layout == "whole"
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)


def test_a_damaged_shard_is_found_and_the_checkpoint_before_is_used(
    make_job: Callable[..., Job], weights: dict[str, Any]
) -> None:
    """One flipped byte in what one process wrote; training goes on from before, says so, and ends as ever."""
    job = make_job(epochs=EPOCHS)
    job.start("w-0", 2, script=SCRIPT)
    job.wait_for_steps(20, world=2)
    while len(manifests(job.folder / "checkpoints")) < 2:
        job.wait_for_steps(10, world=2)
    stop(job, "w-0", 2)
    before, newest = manifests(job.folder / "checkpoints")[-2:]
    (name,) = [name for name in newest.files if name.endswith("__1_0.distcp")]
    shard = job.folder / "checkpoints" / newest.name / name
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    job.start("w-1", 2, script=SCRIPT)
    assert codes(job, "w-1") == [0, 0]
    told = {event.kind: event for event in job.events()}
    assert told[Kind.CHECKPOINT_DAMAGED].facts["checkpoint"] == newest.name
    assert told[Kind.RESTORED].facts["checkpoint"] == before.name
    assert (job.audit().problems, job.audit().duplicates, job.audit().missing) == ((), 0, 0)
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)


def test_shards_that_one_process_cannot_write_cost_that_checkpoint_alone(
    make_job: Callable[..., Job], weights: dict[str, Any]
) -> None:
    """Nobody waits for it: training goes on, nothing is left of the try, and the next one is whole."""
    job = make_job(epochs=EPOCHS)
    job.start("w-0", 2, script=SCRIPT, REFUSED="1")
    assert codes(job, "w-0") == [0, 0]
    kinds = [event.kind for event in job.events() if event.kind in {Kind.CHECKPOINT_FAILED, Kind.CHECKPOINT_SAVED}]
    assert kinds[0] is Kind.CHECKPOINT_FAILED
    assert set(kinds[1:]) == {Kind.CHECKPOINT_SAVED}
    assert all((folder / "manifest.json").exists() for folder in (job.folder / "checkpoints").iterdir())
    (failed,) = [event for event in job.events() if event.kind is Kind.CHECKPOINT_FAILED]
    assert "process 1" in failed.message
    assert "no space is left" in failed.message
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)


def test_pytorchs_own_tools_read_the_shards(make_job: Callable[..., Job]) -> None:
    """A folder of shards is a checkpoint of torch.distributed's: it becomes one file of whole tensors."""
    job = make_job(epochs=EPOCHS)
    job.start("w-0", 2, script=SCRIPT)
    job.wait_for_steps(5, world=2)
    stop(job, "w-0", 2)
    (folder,) = (job.folder / "checkpoints" / manifests(job.folder / "checkpoints")[-1].name).glob("shards-*")
    dcp_to_torch_save(folder, job.folder / "whole.pt")
    whole = torch.load(job.folder / "whole.pt", weights_only=True)
    assert whole["model.0.weight"].shape == (15, 8)


@pytest.mark.slow
def test_what_overflows_in_one_shard_costs_all_the_same_update(
    make_job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of two processes that scale their loss, and a newcomer, come to the weights of one process that does."""
    more = {"SCALED": True, "OVERFLOWS": 12}
    weights = train_alone(tmp_path / "alone", monkeypatch, **more)
    job = make_job(epochs=EPOCHS)
    for pod in ("w-0", "w-1"):
        job.start(pod, 2, script=SCRIPT, **more)
    job.wait_for_steps(20, world=4)
    job.start("w-2", 2, script=SCRIPT, **more)
    assert codes(job, "w-0", "w-1", "w-2") == [0] * 6
    audit = job.audit()
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)
    assert {commit.workers for commit in audit.commits} >= {2, 3}
    skipped = [event for event in job.events() if event.kind is Kind.UPDATE_SKIPPED]
    assert [(event.step, event.facts["scale"]) for event in skipped] == [(12, 2.0**15)]
    torch.testing.assert_close(final(job.folder), weights, rtol=1e-9, atol=1e-12)
