# SPDX-License-Identifier: Apache-2.0
"""What data there is: a manifest of a folder's files, by which new data is told from old."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DataFile", "DataManifest", "Difference"]

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file."""

    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What one manifest has that another has not, as sorted paths."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        parts = [("new", self.added), ("changed", self.changed), ("removed", self.removed)]
        return ", ".join(f"{len(paths)} {word}" for word, paths in parts if paths) or "nothing new"


@dataclass(frozen=True, slots=True)
class DataManifest:
    """The files of a folder, by their path in it. Equal names with equal contents are equal data, of whatever age."""

    files: dict[str, DataFile]

    @classmethod
    def of(cls, folder: Path, known: DataManifest | None = None) -> DataManifest:
        """Look at a folder, without what is hidden (names that begin with a dot: what is still being written).

        A file that is as large and as old as `known` has it is not read again.

        Raises SpecError where there is no such folder, or a file cannot be read.
        """
        if not folder.is_dir():
            raise SpecError(f"there is no folder {folder}", source="data")
        try:
            return cls({str(path.relative_to(folder)): _file(path, folder, known) for path in _visible(folder)})
        except OSError as error:
            raise SpecError(f"{error.filename}: {error.strerror}", source="data") from error

    @classmethod
    def read(cls, path: Path) -> DataManifest | None:
        """What `write` wrote; None where there is nothing, or nothing that can be used."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls({name: DataFile(**each) for name, each in value["files"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "digest": self.digest,
            "size": sum(each.size for each in self.files.values()),
            "files": {name: asdict(each) for name, each in self.files.items()},
        }

    @property
    def digest(self) -> str:
        """Of names and contents."""
        said = json.dumps({name: each.sha256 for name, each in self.files.items()}, sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def since(self, before: DataManifest | None) -> Difference:
        """What has come, changed and gone since."""
        old = before.files if before else {}
        return Difference(
            added=tuple(sorted(self.files.keys() - old.keys())),
            changed=tuple(
                sorted(name for name in self.files.keys() & old.keys() if self.files[name].sha256 != old[name].sha256)
            ),
            removed=tuple(sorted(old.keys() - self.files.keys())),
        )


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _file(path: Path, folder: Path, known: DataManifest | None) -> DataFile:
    stat = path.stat()
    before = known.files.get(str(path.relative_to(folder))) if known else None
    if before is not None and (before.size, before.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
        return before
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return DataFile(stat.st_size, stat.st_mtime_ns, digest.hexdigest())
