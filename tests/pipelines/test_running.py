# SPDX-License-Identifier: Apache-2.0
"""Pipelines run in this process by kfp's local runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.pipelines.running import LOOP_WIDTH, run_here

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PIPELINE = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def meet(folder: str, name: str, guests: int):
    import pathlib, time
    (pathlib.Path(folder) / name).touch()
    deadline = time.monotonic() + 120
    while len(list(pathlib.Path(folder).iterdir())) < guests:
        assert time.monotonic() < deadline, "the others did not come"
        time.sleep(0.05)

@dsl.pipeline(name="p")
def pipeline(folder: str):
    with dsl.ParallelFor(["a", "b", "c", "d"]) as name:
        meet(folder=folder, name=name, guests=4)
"""


def test_iterations_of_a_loop_run_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four that wait for each other come to an end, which with kfp's own two at a time they would not."""
    from kfp.local.orchestrator import enhanced_dag_orchestrator  # noqa: PLC0415

    monkeypatch.setattr(
        enhanced_dag_orchestrator, "ParallelExecutor", enhanced_dag_orchestrator.ParallelExecutor
    )  # put back what the run replaces
    file, folder = tmp_path / "pipeline.py", tmp_path / "met"
    file.write_text(PIPELINE)
    folder.mkdir()
    run_here(file, name=None, values={"folder": str(folder)}, root=tmp_path / "root")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "c", "d"]
    assert LOOP_WIDTH >= 4
