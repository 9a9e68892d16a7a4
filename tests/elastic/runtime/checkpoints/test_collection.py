# SPDX-License-Identifier: Apache-2.0
"""The newest checkpoint that is what was written is used, whatever happened to the others or to a write."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import resource
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.checkpoints import Best, Checkpoints
from kfp_volcano.elastic.runtime.checkpoints.store import Folder
from kfp_volcano.elastic.runtime.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.runtime.checkpoints import Manifest


def checkpoints_in(folder: Path, **settings: Any) -> Checkpoints:
    return Checkpoints(Folder(folder), events=Events(None, owner="w-0"), **settings)


def about(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "lineage": f"{step:032x}"[::-1], **more}


def save(checkpoints: Checkpoints, step: int, **more: Any) -> Manifest:
    return checkpoints.write({"weight": torch.full((3,), float(step))}, about(step, **more))


def newest(checkpoints: Checkpoints) -> int | None:
    return next((int(state["weight"][0]) for _, state in checkpoints.whole()), None)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return checkpoints_in(tmp_path / "checkpoints", keep=3, owner="w-0")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("two")
    writer = checkpoints_in(folder, keep=2, owner="w-0")
    save(writer, 1)
    save(writer, 2)
    return folder


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as parent:
        yield Path(shutil.copytree(folder, Path(parent) / "copy"))


def test_the_newest_is_used_and_few_are_kept(checkpoints: Checkpoints) -> None:
    """Of four three stay, and the state is that of the last."""
    assert newest(checkpoints) is None
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    assert [each.step for each in checkpoints.manifests()] == [40, 30, 20]
    assert newest(checkpoints) == 40


@given(which=st.integers(0), where=st.integers(0), flip=st.integers(1, 255), cut=st.booleans())
@settings(max_examples=60, deadline=None)
def test_whatever_byte_is_flipped_or_cut_the_newest_whole_one_is_used(
    two: Path, which: int, where: int, flip: int, cut: bool
) -> None:
    """A change to any byte of any file of a checkpoint, or an end that is missing, leads to the one before.

    A flip that leaves the manifest's meaning as it was, between its words, does no damage.
    """
    with copy_of(two) as folder:
        files = sorted(max(folder.glob("step-*2-*")).iterdir())
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        where %= len(data)
        before = path.read_bytes()
        if cut:
            data = data[:where]
        else:
            data[where] ^= flip
        path.write_bytes(data)
        harmless = path.name == "manifest.json" and _meaning(bytes(data)) == _meaning(before)
        assert newest(checkpoints_in(folder, keep=2, owner="w-1")) == (2 if harmless else 1)


def _meaning(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_each_that_is_not_whole_is_warned_of(checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged state, a missing one and a checkpoint that was never finished are named, each once."""
    names = [save(checkpoints, step).name for step in (1, 2, 3)]
    folder = Path(checkpoints.store.where)
    (folder / names[2] / "manifest.json").unlink()
    (folder / names[1] / "state-w-0.pt").unlink()
    caplog.set_level(logging.WARNING)
    assert newest(checkpoints) == 1
    assert [name for name in names if name in caplog.text] == names[1:]
    assert "was never finished" in caplog.text


@contextmanager
def volume_of(size: int) -> Iterator[None]:
    """No file may grow beyond a size: each write beyond it fails, as on a full volume."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@given(size=st.integers(0, 2500))
@settings(max_examples=40, deadline=None)
def test_wherever_the_volume_is_full_the_one_before_is_used(two: Path, size: int) -> None:
    """A write that fails at any byte raises OSError, leaves what was there as it was, and nothing of its own."""
    with copy_of(two) as folder:
        writer = checkpoints_in(folder, keep=2, owner="w-0")
        try:
            with volume_of(size):
                save(writer, 3)
            written = True
        except OSError:
            written = False
        assert newest(writer) == (3 if written else 2)
        assert len(list(folder.iterdir())) == 2
        assert written or {path.name for path in folder.iterdir()} == {path.name for path in two.iterdir()}


@pytest.mark.parametrize("failing", range(12))
@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_whichever_call_fails_the_one_before_is_used(
    two: Path, monkeypatch: pytest.MonkeyPatch, call: str, failing: int
) -> None:
    """Any call of the operating system may fail, once: the checkpoint is whole, or the one before is used."""
    count = iter(range(100))
    real = getattr(os, call)

    def sometimes(*arguments: Any, **named: Any) -> Any:
        if next(count) == failing:
            raise OSError(28, "No space left on device")
        return real(*arguments, **named)

    with copy_of(two) as folder:
        writer = checkpoints_in(folder, keep=2, owner="w-0")
        with monkeypatch.context() as patched:
            patched.setattr(os, call, sometimes)
            try:
                save(writer, 3)
                written = True
            except OSError:
                written = False
        assert newest(writer) in ({3} if written else {2, 3})


def test_two_that_write_the_same_state_leave_one_that_is_whole(tmp_path: Path) -> None:
    """Each writes a file of its own; the last manifest counts."""
    for owner in ("w-0", "w-1"):
        save(checkpoints_in(tmp_path, keep=3, owner=owner), 7)
    reader = checkpoints_in(tmp_path, keep=3, owner="w-2")
    assert newest(reader) == 7
    assert [list(each.files) for each in reader.manifests()] == [["state-w-1.pt"]]


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Manifests without sizes and a digest of their own, as versions before wrote them, are taken as they are."""
    folder = tmp_path / "step-0000000005-a0000000"
    folder.mkdir()
    torch.save({"weight": torch.full((3,), 5.0)}, folder / "state.pt")
    digest = hashlib.sha256((folder / "state.pt").read_bytes()).hexdigest()
    old = {"step": 5, "lineage": "a" + "0" * 31, "seed": 0, "files": ["state.pt"], "sha256": {"state.pt": digest}}
    (folder / "manifest.json").write_text(json.dumps(old))
    assert newest(checkpoints_in(tmp_path, keep=3, owner="w-0")) == 5


def test_what_was_never_finished_goes_with_those_it_is_older_than(checkpoints: Checkpoints) -> None:
    """A killed writer's leftovers do not stay for ever, nor are those of a writer at work taken away."""
    folder = Path(checkpoints.store.where)
    for step in (5, 25):
        (folder / f"step-{step:010d}-00000000").mkdir(parents=True)
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    left = sorted(int(path.name[5:15]) for path in folder.iterdir())
    assert left == [20, 25, 30, 40]


@given(values=st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=8), keep=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_the_best_stays_whatever_comes_after_it(values: list[float], keep: int) -> None:
    """Beside the newest there is that with the best value, the first of equal ones; no more."""
    with tempfile.TemporaryDirectory() as folder:
        writer = checkpoints_in(Path(folder), keep=keep, owner="w-0", best=Best("loss", "min"))
        for step, value in enumerate(values):
            save(writer, step, metrics={"loss": value}, logged={"loss": step})
        sound = [(value, step) for step, value in enumerate(values) if not math.isnan(value)]
        wanted = {*range(len(values))[-keep:], *([min(sound)[1]] if sound else [])}
        assert {each.step for each in writer.manifests()} == wanted


def test_a_value_of_another_state_makes_none_the_best() -> None:
    """A metric that was logged some steps ago says nothing of the present state."""
    best = Best("accuracy")
    assert best.better({"accuracy": 0.5}, None)
    assert not best.better({"accuracy": 0.5}, 0.5)
    assert not best.better({"accuracy": float("nan")}, None)
    assert not best.better({"loss": 0.1}, None)
