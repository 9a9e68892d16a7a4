# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of one training, in a store."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime.checkpoints.manifest import (
    MANIFEST,
    DamagedError,
    Digesting,
    Manifest,
    Written,
    digest_of,
    save,
)
from kfp_volcano.elastic.runtime.checkpoints.pieces import parted
from kfp_volcano.elastic.runtime.checkpoints.retention import superfluous
from kfp_volcano.elastic.runtime.checkpoints.together import Together
from kfp_volcano.elastic.runtime.events import Events, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kfp_volcano.elastic.runtime.checkpoints.pieces import Piece
    from kfp_volcano.elastic.runtime.checkpoints.retention import Best
    from kfp_volcano.elastic.runtime.checkpoints.store import Store

__all__ = ["Checkpoints"]

_PREFIX = "step-"
_READERS = 4
"""Files whose digests are looked at at once."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """Folders `step-<steps>-<lineage>/` with a state and the manifest that makes them checkpoints.

    Args:
        store: where they are.
        keep: how many stay, beside the best.
        owner: a name no other worker writes under. Files are called by it, so that two workers that save the same
            state do not write one file.
        events: where damage is told.
        best: which is the best; None: none is.
        together: the processes that write each checkpoint; the first of them manages the folders.
    """

    def __init__(
        self,
        store: Store,
        *,
        keep: int,
        owner: str,
        events: Events,
        best: Best | None = None,
        together: Together | None = None,
    ) -> None:
        self.store = store
        self.best = best
        self._keep = keep
        self._owner = owner
        self._events = events
        self._together = together or Together()

    def manifests(self, *, loud: bool = False) -> list[Manifest]:
        """Those whose manifest is whole, that with most steps first; `loud` warns of each that is not.

        Raises OSError where the store cannot be reached: that there are none is not known then.
        """
        found = []
        for name in sorted(filter(_is_checkpoint, self.store.folders()), reverse=True):
            try:
                found.append(self._manifest(name))
            except FileNotFoundError:  # noqa: PERF203 - few checkpoints, and each may fail
                if loud:
                    self._damaged(name, "was never finished")
            except (DamagedError, OSError) as error:
                if loud:
                    self._damaged(name, f"is damaged: {error}")
        return found

    def _manifest(self, name: str) -> Manifest:
        with self.store.reading(f"{name}/{MANIFEST}") as file:
            manifest = Manifest.parse(file.read())
        if manifest.name != name:
            raise DamagedError(f"{MANIFEST} is that of {manifest.name}")
        return manifest

    def withdraw(self, *, beyond: int) -> None:
        """Removes those of more than so many steps. Raises OSError."""
        for manifest in self.manifests():
            if manifest.step > beyond:
                self.store.remove(manifest.name)

    def whole(self, *, until: int | None = None) -> Iterator[tuple[Manifest, dict[str, Any]]]:
        """The checkpoints that are what was written, with their states, that with most steps first.

        Warns of each that is not.
        Raises OSError where the store cannot be reached.
        """
        for manifest in self.manifests(loud=True):
            if until is not None and manifest.step > until:
                continue
            try:
                state = self.load(manifest)
            except (DamagedError, OSError) as error:
                self._damaged(manifest.name, f"is damaged: {error}")
                continue
            yield manifest, state

    def load(self, manifest: Manifest) -> dict[str, Any]:
        """The state in a checkpoint, on the CPU; what is sharded in it is empty until `fill`.

        Raises:
            DamagedError: it is not what was written.
            OSError: it cannot be read.
        """
        shards = [name for name in manifest.files if "/" in name]
        with ThreadPoolExecutor(_READERS, "checkpoint") as threads:
            for _ in threads.map(lambda name: self._check(manifest, name), shards):
                pass
        state: dict[str, Any] | None = None
        for name in manifest.files.keys() - shards:
            with self.store.local(f"{manifest.name}/{name}") as path:
                with path.open("rb") as file:
                    _compare(name, digest_of(file), manifest.files[name])
                try:
                    state = torch.load(path, map_location="cpu", weights_only=True)
                except (RuntimeError, ValueError, KeyError, EOFError) as error:
                    raise DamagedError(f"{name} is no state: {error}") from error
        if state is None:
            raise DamagedError(f"{MANIFEST} names no files")
        return state

    def fill(self, manifest: Manifest, tensors: Mapping[str, torch.Tensor]) -> None:
        """Reads what is sharded in a checkpoint that `load` found whole, into tensors by name.

        Raises:
            OSError: it cannot be read.
            RuntimeError: they are others.
        """
        if tensors:
            from kfp_volcano.elastic.runtime.checkpoints.dcp import read_into  # noqa: PLC0415 - a second to import

            folder = next(name for name in manifest.files if "/" in name).partition("/")[0]
            read_into(self.store, f"{manifest.name}/{folder}", tensors)

    def _check(self, manifest: Manifest, name: str) -> None:
        with self.store.reading(f"{manifest.name}/{name}") as file:
            _compare(name, digest_of(file), manifest.files[name])

    def write(
        self, state: Mapping[str, Any], about: Mapping[str, Any], *, before: Callable[[], None] = lambda: None
    ) -> Manifest:
        """Writes a checkpoint, then removes those that are too many.

        Args:
            state: what `load` gives back; of what is sharded in it, the pieces of this process.
            about: further entries of the manifest; `step` and `lineage` name it.
            before: called first; where it raises OSError nothing is written.

        Raises:
            OSError: the store refused it; those before are as they were.
        """
        name = Manifest.of(about, {}).name
        first = self._together.rank == 0
        try:
            self._together.do(before)
            frame, pieces = parted(state)
            found = self._together.do(lambda: self._write_pieces(name, pieces))
            if first:
                found.append(self._write_frame(name, frame))
            files = {file: written for each in found for file, written in each.items()}
            manifest = Manifest.of(about, files, layout="sharded" if pieces else "whole")
            if first:
                self._publish(manifest)
        except OSError:
            if first:
                self._forget(name)
            raise
        if first:
            self._tidy()
        return manifest

    def _write_frame(self, name: str, state: Any) -> dict[str, Written]:
        file = f"state-{self._owner}.pt"
        with self.store.writing(f"{name}/{file}") as raw:
            digesting = Digesting(raw)
            save(state, digesting)
        return {file: digesting.written}

    def _write_pieces(self, name: str, pieces: Mapping[str, Piece]) -> dict[str, Written]:
        if not pieces:
            return {}
        from kfp_volcano.elastic.runtime.checkpoints.dcp import write_pieces  # noqa: PLC0415 - a second to import

        written = write_pieces(self.store, f"{name}/shards-{self._owner}", pieces, self._together)
        return {path.partition("/")[2]: file for path, file in written.items()}

    def _damaged(self, name: str, how: str) -> None:
        _log.warning("checkpoint %s %s", name, how)
        self._events.add(Kind.CHECKPOINT_DAMAGED, f"checkpoint {name} {how}; using the one before", checkpoint=name)

    def _publish(self, manifest: Manifest) -> None:
        with self.store.writing(f"{manifest.name}/{MANIFEST}") as file:
            file.write(manifest.dump())

    def _forget(self, name: str) -> None:
        """Removes what a failed write left, unless another worker has made a checkpoint of it."""
        with suppress(OSError):
            if not self.store.exists(f"{name}/{MANIFEST}"):
                self.store.remove(name)

    def _tidy(self) -> None:
        """Removes what is too many, and what was never finished and is older than all that stays."""
        try:
            whole = self.manifests()
            gone = {each.name for each in superfluous(whole, keep=self._keep, best=self.best)}
            oldest = min((each.name for each in whole[: self._keep]), default="")
            known = {each.name for each in whole}
            left = {name for name in self.store.folders() if _is_checkpoint(name) and name not in known}
            for name in gone | {name for name in left if name < oldest}:
                self.store.remove(name)
        except OSError as error:
            _log.warning("old checkpoints in %s could not be removed: %s", self.store.where, error)


def _compare(name: str, found: Written, written: Written) -> None:
    if found.sha256 != written.sha256:
        size = f", {found.size} bytes of {written.size}" if written.size not in (None, found.size) else ""
        raise DamagedError(f"{name} is not what was written{size}")


def _is_checkpoint(name: str) -> bool:
    return name.startswith(_PREFIX)
