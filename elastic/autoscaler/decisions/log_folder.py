# SPDX-License-Identifier: Apache-2.0
"""JSON lines in a folder: append-only files of bounded size, the oldest of which go.

Files are `NAME-000001.jsonl`, `NAME-000002.jsonl`, …; the last one is written to. A line that a writer was killed in
the middle of is ended by the next writer, and left out by readers.
"""

from __future__ import annotations

import errno
import json
import logging
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["LogFolder", "log_files", "log_lines"]

_log = logging.getLogger(__name__)


class LogFolder:
    """Appends lines. That they cannot be written is said once, and stops nobody.

    Args:
        folder: Is made where it is not there. One writer at a time.
        name: What the files' names begin with.
        most_bytes: After which a file is followed by the next.
        most_files: How many are kept.
    """

    def __init__(self, folder: Path, name: str, *, most_bytes: int, most_files: int) -> None:
        self._folder = folder
        self._name = name
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._file: BinaryIO | None = None
        self._size = 0
        self._broken = False

    def full(self) -> bool:
        """Whether a file is to be begun: the first that this writer writes to, or the one after a full one."""
        return self._file is None or self._size >= self._most_bytes

    def begin(self, line: Mapping[str, Any]) -> None:
        """Begin a file, or go on in the last one if that is not full, with this line."""
        self._size = 0
        self._try(self._open)
        self.append(line)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line; after one that could not be written, nothing until a file is begun again."""
        if self._file is None:
            return
        data = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._try(lambda: self._write(data))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            if not self._broken:
                _log.warning("the log in %s cannot be written: %s", self._folder, error)
            self._broken = True
            self.close()
        else:
            self._broken = False

    def _write(self, data: bytes) -> None:
        if self._file is not None and self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "there was room for a part of a line alone")
        self._size += len(data)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self) -> None:
        """Go on in the last file there is, unless that one is full."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        files = log_files(self._folder, self._name)
        if files and files[-1].stat().st_size < self._most_bytes:
            path = files[-1]
        else:
            number = int(files[-1].stem.rpartition("-")[2]) + 1 if files else 1
            path = self._folder / f"{self._name}-{number:06}.jsonl"
            for old in files[: max(0, len(files) + 1 - self._most_files)]:
                old.unlink(missing_ok=True)
        torn = _is_torn(path)
        self._file = path.open("ab", buffering=0)
        if torn:
            self._write(b"\n")
        self._size = self._file.tell()


def log_files(folder: Path, name: str) -> list[Path]:
    """The files of a log, oldest first."""
    pattern = re.compile(rf"{re.escape(name)}-\d+")
    return sorted(path for path in folder.glob(f"{name}-*.jsonl") if pattern.fullmatch(path.stem))


def log_lines(
    folder: Path, name: str, *, naming: Sequence[str] = ("",), last: int | None = None
) -> Iterator[dict[str, Any]]:
    """The lines of a log, oldest first; those with one of some texts in them, of the last so many files.

    What is no JSON object of a `kind` is left out: a writer was killed in the middle of it. Raises OSError where a file
    cannot be read; one that goes while this reads is passed over.
    """
    wanted = [each.encode() for each in naming]
    for path in log_files(folder, name)[-(last or 0) :]:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue
        with file:
            for data in file:
                if any(each in data for each in wanted) and (line := _parsed(data)) is not None:
                    yield line


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(data)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None


def _is_torn(path: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
