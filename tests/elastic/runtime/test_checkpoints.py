"""Checkpoints are whole or not there; the final model is written once."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, Final, copy_to_cpu

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def save(checkpoints: Checkpoints, step: int) -> None:
    about = {"step": step, "lineage": f"{step:032x}"[::-1]}
    assert checkpoints.save({"weight": torch.full((3,), step)}, about, before=lambda: None, wait=True)


def steps(state: dict[str, Any] | None) -> int | None:
    return None if state is None else int(state["weight"][0])


def test_the_newest_whole_one_is_used_and_few_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file, a missing one, a spoilt manifest: each falls back to the one before, with a warning."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3, owner="w-0")
    assert checkpoints.newest() is None
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    kept = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name[:15] for path in kept] == ["step-0000000020", "step-0000000030", "step-0000000040"]
    assert steps(checkpoints.newest()) == 40
    caplog.set_level(logging.WARNING)
    (kept[2] / "state.pt").write_bytes((kept[2] / "state.pt").read_bytes()[:-1] + b"?")
    assert steps(checkpoints.newest()) == 30
    (kept[1] / "state.pt").unlink()
    assert steps(checkpoints.newest()) == 20
    (kept[0] / "manifest.json").write_text("{")
    assert checkpoints.newest() is None
    assert "using the one before" in caplog.text


def test_a_volume_that_refuses_costs_the_checkpoint_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on, nothing half-written is left, and the log says so."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3, owner="w-0")

    def fail() -> None:
        raise OSError("no space left on device")

    checkpoints.save({}, {"step": 1, "lineage": "0" * 32}, before=fail, wait=True)
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert "no space left" in caplog.text


def test_the_final_model_is_written_once(tmp_path: Path) -> None:
    """The second writer changes nothing; the manifest names the files and their digests."""
    model = torch.nn.Linear(2, 2)
    first, second = (Final(tmp_path / "final", owner=owner) for owner in ("w-0", "w-1"))
    assert not first.wait(0.0)
    first.write(model.state_dict(), {"step": 5})
    second.write(model.state_dict(), {"step": 6})
    assert second.wait(0.0)
    manifest = json.loads((tmp_path / "final" / "manifest.json").read_text())
    assert (manifest["step"], manifest["files"], list(manifest["sha256"])) == (5, ["model.pt"], ["model.pt"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final"]
    saved = torch.load(tmp_path / "final" / "model.pt", weights_only=True)
    assert saved["weight"].equal(model.weight)


def test_a_copy_does_not_follow_the_original() -> None:
    """What is being written in the background does not change with the next step."""
    original = {"a": [torch.zeros(2)], "b": (1, torch.zeros(1))}
    copy = copy_to_cpu(original)
    original["a"][0] += 1
    assert copy["a"][0].equal(torch.zeros(2))
    assert isinstance(copy["b"], tuple)
