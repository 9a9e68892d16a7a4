# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint is and what is in it: the file that makes it one.

`manifest.json` is written last. It holds the size and SHA-256 of each other file and a digest of itself, so that no
change to a checkpoint goes unseen; and where in training it was made, under what plan, for people and for the audit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MANIFEST", "DamagedError", "Digesting", "Manifest", "Written", "digest_of", "save"]

MANIFEST = "manifest.json"
FORMAT = 2
"""1: without sizes, a digest of its own and `format` itself."""
_NEW = frozenset({"format", "digest", "bytes"})
"""Keys that no manifest of format 1 has; one flipped byte cannot hide them all."""

Layout = Literal["whole", "sharded"]


class DamagedError(Exception):
    """A checkpoint is not what was written."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it was written."""

    size: int | None
    """In bytes; None where a manifest of format 1 does not say."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint's manifest."""

    step: int
    """Global batches committed."""
    lineage: str
    """Digest of all attempts that led to the state (`elastic.ledger`)."""
    files: Mapping[str, Written]
    layout: Layout = "whole"
    """`whole`: one file of `torch.save`; `sharded`: files of `torch.distributed.checkpoint`."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Everything else: the plan (`size`, `batch`, `epochs`, `seed`), `samples`, cursor, learning rate, metrics, …."""

    @property
    def name(self) -> str:
        """The checkpoint's folder."""
        return f"step-{self.step:010d}-{self.lineage[:8]}"

    @property
    def metrics(self) -> Mapping[str, float]:
        """The latest values that the training code had logged."""
        found: Mapping[str, float] = self.about.get("metrics", {})
        return found

    @classmethod
    def of(cls, about: Mapping[str, Any], files: Mapping[str, Written], *, layout: Layout = "whole") -> Manifest:
        """The manifest of files; `about` has `step` and `lineage` beside all else."""
        rest = {key: value for key, value in about.items() if key not in _OWN}
        return cls(step=about["step"], lineage=about["lineage"], files=files, layout=layout, about=rest)

    def dump(self) -> bytes:
        """The file's contents."""
        entries = {
            **self.about,
            "format": FORMAT,
            "step": self.step,
            "lineage": self.lineage,
            "layout": self.layout,
            "files": sorted(self.files),
            "bytes": {name: file.size for name, file in self.files.items()},
            "sha256": {name: file.sha256 for name, file in self.files.items()},
        }
        return json.dumps({**entries, "digest": _digest(entries)}, indent=1).encode()

    @classmethod
    def parse(cls, text: bytes) -> Manifest:
        """Reads a manifest of this format or an earlier one.

        Raises DamagedError where it is not one, or not what was written.
        """
        try:
            entries: dict[str, Any] = json.loads(text)
            if _NEW & entries.keys():
                if _digest({key: value for key, value in entries.items() if key != "digest"}) != entries["digest"]:
                    raise DamagedError(f"{MANIFEST} is not what was written")
                if entries["format"] > FORMAT:
                    raise DamagedError(f"{MANIFEST} has format {entries['format']}, of a newer version")
            sizes = entries.get("bytes", {})
            files = {name: Written(sizes.get(name), digest) for name, digest in entries["sha256"].items()}
            return cls.of(entries, files, layout=entries.get("layout", "whole"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{MANIFEST} cannot be read: {error!r}") from error


_OWN = _NEW | {"step", "lineage", "layout", "files", "sha256"}


def _digest(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


class Digesting:
    """A file being written, with its size and digest so far. It cannot seek: each byte counts once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None
        """What a write raised."""
        self._size = 0
        self._sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """See IO.write; all or an error."""
        view = memoryview(data).cast("B")
        try:
            self._file.write(view)
        except OSError as error:
            self.error = error
            raise
        self._sha256.update(view)
        self._size += len(view)
        return len(view)

    def flush(self) -> None:
        """See IO.flush."""
        self._file.flush()

    @property
    def written(self) -> Written:
        """What was written."""
        return Written(self._size, self._sha256.hexdigest())


def digest_of(file: IO[bytes]) -> Written:
    """Size and digest of a file's rest."""
    size, digest = 0, hashlib.sha256()
    while block := file.read(1 << 20):
        size += len(block)
        digest.update(block)
    return Written(size, digest.hexdigest())


def save(state: Any, file: Digesting) -> None:
    """`torch.save` that raises what the file raised: torch's writer hides it in a RuntimeError of its own."""
    try:
        torch.save(state, cast("IO[bytes]", file))
    except RuntimeError as error:
        if file.error is not None:
            raise file.error from error
        raise
