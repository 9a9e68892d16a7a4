"""Checkpoints and the final model, written so that whatever is there under its name is whole.

A checkpoint is a folder `checkpoints/step-<steps>-<lineage>/` with the state and a `manifest.json` holding the SHA-256
of each file. It is written under another name, forced to the disk and renamed; the digest shows what a failing disk or
a person did to it later.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Checkpoints", "Final", "copy_to_cpu"]

_STATE = "state.pt"
_MANIFEST = "manifest.json"
_ABANDONED_S = 3600.0
_POLL_S = 0.05

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a Job.

    Args:
        folder: where they are.
        keep: how many stay.
        owner: a name no other process writes under.
    """

    def __init__(self, folder: Path, *, keep: int, owner: str) -> None:
        self._folder = folder
        self._keep = keep
        self._owner = owner
        self._writing: threading.Thread | None = None
        folder.mkdir(exist_ok=True)

    def newest(self, *, until: int | None = None) -> dict[str, Any] | None:
        """The state in the checkpoint with most steps, `until` at most, that is whole; warns of each that is not."""
        for path in self._all():
            try:
                manifest = json.loads((path / _MANIFEST).read_text())
                if until is not None and manifest["step"] > until:
                    continue
                for name, digest in manifest["sha256"].items():
                    if _sha256(path / name) != digest:
                        raise ValueError(f"{name} is not what was written")  # noqa: TRY301 - one place for what to do then
                state: dict[str, Any] = torch.load(path / _STATE, map_location="cpu", weights_only=True)
            except (OSError, ValueError, KeyError, RuntimeError) as error:
                _log.warning("checkpoint %s is damaged (%s): using the one before", path.name, error)
                continue
            return state
        return None

    def withdraw(self, *, beyond: int) -> None:
        """Removes the checkpoints of more than `beyond` steps: training went back, and nobody is to begin with them."""
        if self._writing is not None:
            self._writing.join()
        for path in self._all():
            if int(path.name.split("-")[1]) > beyond:
                shutil.rmtree(path, ignore_errors=True)

    def save(
        self, state: Mapping[str, Any], about: Mapping[str, Any], *, before: Callable[[], None], wait: bool = False
    ) -> bool:
        """Writes a checkpoint in the background; False where the last one is still being written.

        Args:
            state: what to save; must not change any more (`copy_to_cpu`).
            about: the manifest's entries; `step` and `lineage` name the checkpoint, and the newest one that is `best`
                is kept however old it is.
            before: called in the background before the checkpoint counts.
            wait: return only when it is written.
        """
        if self._writing is not None:
            if wait:
                self._writing.join()
            elif self._writing.is_alive():
                return False
        path = self._folder / f"step-{about['step']:010d}-{about['lineage'][:8]}"
        self._writing = threading.Thread(target=self._write, args=(path, state, about, before), name="checkpoint")
        self._writing.start()
        if wait:
            self._writing.join()
        return True

    def _write(
        self, path: Path, state: Mapping[str, Any], about: Mapping[str, Any], before: Callable[[], None]
    ) -> None:
        try:
            before()
            _publish(path, {_STATE: state}, about, owner=self._owner)
            best = next((each for each in self._all() if _is_best(each)), None)
            for old in self._all()[self._keep :]:
                if old != best:
                    shutil.rmtree(old, ignore_errors=True)
            for left in self._folder.glob(".*"):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            # Training is worth more than this checkpoint; the next may succeed.
            _log.error("checkpoint %s could not be written: %s", path.name, error)

    def _all(self) -> list[Path]:
        """Those with most steps first."""
        return sorted(self._folder.glob("step-*"), key=lambda path: path.name, reverse=True)


def _is_best(path: Path) -> bool:
    """Whether a checkpoint had the best evaluation of its time: of several the newest is the best."""
    try:
        return bool(json.loads((path / _MANIFEST).read_text()).get("best"))
    except (OSError, ValueError):
        return False


class Final:
    """The finished training's model, `model.pt`, with its manifest. Written once, by whoever comes first."""

    def __init__(self, folder: Path, *, owner: str) -> None:
        self._folder = folder
        self._owner = owner

    def exists(self) -> bool:
        """Whether it has been written."""
        return (self._folder / _MANIFEST).exists()

    def wait(self, seconds: float) -> bool:
        """Waits for somebody to write it; False where nobody did."""
        deadline = time.monotonic() + seconds
        while not self.exists():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def write(self, model: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Writes a model's state, unless there is one. Raises OSError where the volume refuses it."""
        _publish(self._folder, {"model.pt": copy_to_cpu(dict(model))}, about, owner=self._owner)


def _publish(path: Path, contents: Mapping[str, Any], about: Mapping[str, Any], *, owner: str) -> bool:
    """Writes a folder of `torch.save`d files with their manifest, all at once; False where it exists already.

    Raises OSError where the volume refuses it; nothing is left under `path` then.
    """
    draft = path.parent / f".{path.name}-{owner}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        for name, content in contents.items():
            with (draft / name).open("wb") as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
        digests = {name: _sha256(draft / name) for name in contents}
        with (draft / _MANIFEST).open("w") as file:
            json.dump({**about, "files": sorted(contents), "sha256": digests}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        try:
            draft.rename(path)
        except OSError:
            if (path / _MANIFEST).exists():
                return False
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def copy_to_cpu(value: Any) -> Any:
    """The value with every tensor in it copied to the CPU, so that training can go on changing the original."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copy_to_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copy_to_cpu(item) for item in value)
    return value


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file: Any) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
