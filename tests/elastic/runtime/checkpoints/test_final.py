# SPDX-License-Identifier: Apache-2.0
"""The final model is written once, and whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from kfp_volcano.elastic.runtime.checkpoints import Final, load_final
from kfp_volcano.elastic.runtime.checkpoints.store import Folder

if TYPE_CHECKING:
    from pathlib import Path


def test_the_final_model_is_written_once(tmp_path: Path) -> None:
    """The second writer changes nothing; the manifest names the files, their sizes and their digests."""
    model = torch.nn.Linear(2, 2)
    first, second = (Final(tmp_path / "final", owner=owner) for owner in ("w-0", "w-1"))
    assert not first.wait(0.0)
    first.write(model.state_dict(), {"step": 5, "lineage": "a"})
    second.write(model.state_dict(), {"step": 6, "lineage": "b"})
    assert second.wait(0.0)
    manifest = json.loads((tmp_path / "final" / "manifest.json").read_text())
    assert (manifest["step"], manifest["files"], list(manifest["sha256"])) == (5, ["model.pt"], ["model.pt"])
    assert manifest["bytes"] == {"model.pt": (tmp_path / "final" / "model.pt").stat().st_size}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final"]
    saved = load_final(Folder(tmp_path / "final"))
    assert saved is not None
    assert saved["weight"].equal(model.weight)


def test_a_damaged_final_model_is_none(tmp_path: Path) -> None:
    """Neither a model that was changed nor a folder without one is taken for a model."""
    assert load_final(Folder(tmp_path / "final")) is None
    Final(tmp_path / "final", owner="w-0").write({"weight": torch.ones(3)}, {"step": 5, "lineage": "a"})
    path = tmp_path / "final" / "model.pt"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert load_final(Folder(tmp_path / "final")) is None
