# SPDX-License-Identifier: Apache-2.0
"""The finished training's model: `final/model.pt` with its manifest, in the job folder."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime.checkpoints.manifest import (
    MANIFEST,
    DamagedError,
    Digesting,
    Manifest,
    digest_of,
    save,
)
from kfp_volcano.elastic.runtime.checkpoints.snapshot import copy_to_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kfp_volcano.elastic.runtime.checkpoints.store import Store

__all__ = ["MODEL", "Final", "load_final"]

MODEL = "model.pt"
_POLL_S = 0.05


class Final:
    """Written once, by whoever comes first: as a folder of another name that is renamed when it is on the disk."""

    def __init__(self, folder: Path, *, owner: str) -> None:
        self._folder = folder
        self._owner = owner

    def exists(self) -> bool:
        """Whether it has been written."""
        return (self._folder / MANIFEST).exists()

    def manifest(self) -> Manifest | None:
        """Its manifest; None where there is none that can be read."""
        try:
            return Manifest.parse((self._folder / MANIFEST).read_bytes())
        except (OSError, DamagedError):
            return None

    def wait(self, seconds: float) -> bool:
        """Waits for somebody to write it; False where nobody did."""
        deadline = time.monotonic() + seconds
        while not self.exists():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def write(self, model: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Writes a model's state, unless there is one. Raises OSError, and leaves nothing, where it cannot."""
        draft = self._folder.parent / f".{self._folder.name}-{self._owner}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            with (draft / MODEL).open("wb") as file:
                digesting = Digesting(file)
                save(copy_to_cpu(dict(model)), digesting)
                file.flush()
                os.fsync(file.fileno())
            with (draft / MANIFEST).open("wb") as file:
                file.write(Manifest.of(about, {MODEL: digesting.written}).dump())
                file.flush()
                os.fsync(file.fileno())
            try:
                draft.rename(self._folder)
            except OSError:
                if self.exists():
                    return
                raise
            parent = os.open(self._folder.parent, os.O_RDONLY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def load_final(store: Store) -> dict[str, Any] | None:
    """The state of a final model at a place; None where there is none that is whole. Raises OSError."""
    try:
        with store.reading(MANIFEST) as file:
            manifest = Manifest.parse(file.read())
    except (FileNotFoundError, DamagedError):
        return None
    with store.local(MODEL) as path:
        with path.open("rb") as file:
            if digest_of(file).sha256 != manifest.files[MODEL].sha256:
                return None
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return found
