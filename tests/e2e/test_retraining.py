# SPDX-License-Identifier: Apache-2.0
"""Retraining end to end, as the schedule runs it night after night."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Run

SHORT = ("--nodes", "1x4", "--param", "epochs=4", "--param", "cooldown=5s")


def deployed(volume: Path) -> dict[str, Any]:
    """What is deployed; nothing where nothing is."""
    pointer = volume / "models" / "promoted.json"
    found: dict[str, Any] = json.loads(pointer.read_text()) if pointer.exists() else {}
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)  # three runs that train, one that does not
def test_a_model_is_retrained_when_there_is_new_data_and_deployed_when_it_is_better(
    start: Callable[..., Run], root: Path, tmp_path: Path
) -> None:
    """New data: trained and deployed. None: not trained. More data, but a worse model: trained and kept out."""
    pipeline, volume = root / "pipelines" / "scheduled_retraining.py", tmp_path / "volume"

    def arrive(*parts: str) -> None:
        program = root / "pipelines" / "examples" / "retraining" / "arrive.py"
        subprocess.run([sys.executable, str(program), str(volume / "data"), *parts], check=True)

    def night(*options: str) -> Run:
        run = start(*SHORT, "--volume", f"retraining={volume}", *options, pipeline=pipeline)
        assert run.end() == 0, run.output()
        run.gone()
        return run

    def versions() -> list[dict[str, Any]]:
        paths = sorted((volume / "models" / "versions").glob("*/outcome.json"), key=lambda path: path.stat().st_mtime)
        return [json.loads(path.read_text()) for path in paths]

    arrive("0", "1", "2")
    night()
    first = deployed(volume)
    assert first["evaluation"]["candidate"] > 0.5
    assert [each["outcome"] for each in versions()] == ["promoted"]
    data = json.loads((volume / "models" / "versions" / first["version"] / "data.json").read_text())
    assert (sorted(data["files"]), data["digest"]) == (["part-0.npz", "part-1.npz", "part-2.npz"], first["data"])
    assert (volume / "models" / first["model"] / "model.pt").is_file()

    idle = night()
    assert deployed(volume) == first
    assert len(versions()) == 1
    assert not (idle.out / "result.json").exists()

    arrive("3")
    night("--param", "lr=0.0000001")
    assert deployed(volume) == first
    assert [each["outcome"] for each in versions()] == ["promoted", "kept"]

    arrive("4", "5", "6")
    night("--param", "epochs=8")
    assert deployed(volume)["version"] != first["version"]
    assert deployed(volume)["evaluation"]["candidate"] >= deployed(volume)["evaluation"]["deployed"]
    assert sorted(path.name for path in volume.iterdir()) == ["data", "models"]
