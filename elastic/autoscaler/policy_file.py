# SPDX-License-Identifier: Apache-2.0
"""Policies from a file or a folder, read again when it changes: a mounted ConfigMap, or what an editor saves.

A change counts once it has settled, that is looks the same a second time: a file that is being written is not read in
the middle. What is wrong is told, and the last good Policies stay; never a part of them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.documents import parse_all
from kfp_volcano.schemas.policy import Policies
from kfp_volcano.schemas.policy_validation import policies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.elastic.policies.choice import Factory
    from kfp_volcano.elastic.policies.guards import Guarded
    from kfp_volcano.schemas.policy import QueuePolicy

__all__ = ["LOOK_S", "PolicyFile", "read_policies"]

LOOK_S = 1.0
"""Least time between two looks at the files, seconds."""

_SUFFIXES = {".yaml", ".yml", ".json"}

_log = logging.getLogger(__name__)


class _State(NamedTuple):
    """What tells one version of a file from the next, without reading it."""

    path: str
    inode: int
    size: int
    changed_ns: int


def read_policies(path: Path, own: Mapping[str, Factory] | None = None) -> Policies:
    """The Policies in a file, or in the `*.yaml`, `*.yml` and `*.json` files of a folder.

    All of them are made once, so that what they are made of is known to be there. Raises SpecError with every problem.
    """
    own = own_policies() if own is None else own
    documents = []
    for file in _files(path):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"cannot be read: {error}", source=str(file)) from error
        found = parse_all(text, source=str(file))
        names = [str(file)] if len(found) == 1 else [f"{file}, document {index}" for index in range(1, len(found) + 1)]
        documents += list(zip(names, found, strict=True))
    if not documents:
        raise SpecError("holds no *.yaml, *.yml or *.json file", source=str(path))
    read = policies(documents, source=str(path), own=own)
    for each in read.each:
        policy_for(each, own)
    return read


class PolicyFile:
    """The Policies in force; one of its own, the default, where there is no file.

    Args:
        path: A file or a folder; None for the default everywhere.
        optional: Whether the default decides, too, while there is nothing, or while what was there first is wrong.
        told: Called with None when new Policies are in force, with the error when what is there is wrong; once each.
        own: What makes the policies that other packages bring; by default those that are installed.
        clock: Seconds that never go back.

    Raises:
        SpecError: What is there at the beginning is wrong, and not `optional`.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        optional: bool = False,
        told: Callable[[SpecError | None], None] = lambda _: None,
        own: Mapping[str, Factory] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._optional = optional
        self._told = told
        self._own = own_policies() if own is None else own
        self._clock = clock
        self._look_at = clock() + LOOK_S
        self._seen = _states(path)
        self._tried = self._seen
        self._policies = self._first()
        self._made: dict[tuple[str, ...], Guarded] = {}
        self._in_use: dict[str, QueuePolicy] = {}

    def refresh(self) -> bool:
        """Look at the files, at most once a second. Returns whether other Policies are in force."""
        if self._path is None or self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_S
        before, self._seen = self._seen, _states(self._path)
        if self._seen != before or self._seen == self._tried:
            return False
        return self._read()

    def spec_of(self, queue: str) -> QueuePolicy:
        """The Policy of a queue, as it was written."""
        return self._policies.of(queue)

    def spec_in_use(self, queue: str) -> QueuePolicy:
        """The Policy by which `policy_of` gave what decides for a queue last: what a decision is logged with."""
        return self._in_use.get(queue) or self.spec_of(queue)

    def policy_of(self, queue: str) -> Guarded:
        """What decides for a queue; the same object until other Policies are in force."""
        spec = self._in_use[queue] = self.spec_of(queue)
        key = (spec.name, *spec.queues)
        if key not in self._made:
            self._made[key] = policy_for(spec, self._own)
        return self._made[key]

    def _first(self) -> Policies:
        try:
            return self._load()
        except SpecError as error:
            if not self._optional:
                raise
            _log.error("the default decides, for the policies are wrong: %s", error)
            self._told(error)
            return Policies()

    def _load(self) -> Policies:
        if self._path is None or (self._optional and not _states(self._path)):
            return Policies()
        return read_policies(self._path, self._own)

    def _read(self) -> bool:
        try:
            read = self._load()
        except SpecError as error:
            if _states(self._path) != self._seen:
                return False  # it has changed again while it was read
            self._tried = self._seen
            _log.error("the policies stay as they were, for what is there now is wrong: %s", error)
            self._told(error)
            return False
        if _states(self._path) != self._seen:
            return False
        self._tried = self._seen
        changed = read != self._policies
        self._policies, self._made = read, {}
        self._told(None)
        if changed:
            _log.info("new policies are in force: %s", ", ".join(each.name for each in read.each))
        return changed


def _files(path: Path) -> list[Path]:
    """The files with Policies; what begins with a dot is no file of a user's, but a ConfigMap's own or an editor's."""
    if not path.is_dir():
        return [path]
    return sorted(
        each for each in path.iterdir() if each.suffix in _SUFFIXES and each.name[0] != "." and each.is_file()
    )


def _states(path: Path | None) -> tuple[_State, ...]:
    """How the files look; empty where they cannot be looked at."""
    if path is None:
        return ()
    try:
        found = [(file, file.stat()) for file in _files(path)]
    except OSError:
        return ()
    return tuple(_State(str(file), state.st_ino, state.st_size, state.st_mtime_ns) for file, state in found)
