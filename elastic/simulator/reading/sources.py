# SPDX-License-Identifier: Apache-2.0
"""What a user names as a trace: a file, one that is packed, or one within an archive; and its text."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Source", "open_source"]

_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_TABLES = (".csv", ".tsv", ".txt", ".json")
_MOST_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read."""

    name: str
    """What messages call it."""
    stem: str
    """Its own name without what tells its kind."""
    text: str
    folder: Path
    """Where it, or its archive, is: what belongs to it may be beside it."""


def open_source(path: Path) -> Source:
    """Read a file; `ARCHIVE.tar.gz/MEMBER.csv` is one within an archive.

    Raises SpecError where it cannot be read, holds several traces, or is not text.
    """
    archive = next((each for each in (path, *path.parents) if each.name.endswith(_ARCHIVES) and each.is_file()), None)
    if archive is not None:
        member, data = _member(archive, path.relative_to(archive).as_posix())
        return Source(f"{archive}/{member}", _stem(member), _text(data, f"{archive}/{member}"), archive.parent)
    data = _bytes(path)
    return Source(str(path), _stem(path.name), _text(data, str(path)), path.parent)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".gz").rpartition(".")[0] or name


def _bytes(path: Path) -> bytes:
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path) as packed:
                return _all_of(packed, str(path))
        return path.read_bytes()
    except IsADirectoryError as error:
        raise SpecError("is a folder: name a file in it", source=str(path)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpecError(f"cannot be unpacked: {error}", source=str(path)) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror or error}", source=str(path)) from error


def _member(archive: Path, wanted: str) -> tuple[str, bytes]:
    """A file of an archive: the one that is wanted, or its only table."""
    try:
        with tarfile.open(archive) as opened:
            names = [each.name.removeprefix("./") for each in opened.getmembers() if each.isfile()]
            tables = [each for each in names if each.endswith(_TABLES) and not each.rpartition("/")[2].startswith(".")]
            if wanted == "." and len(tables) == 1:
                (wanted,) = tables
            if wanted not in names:
                there = ", ".join(f"{archive}/{each}" for each in sorted(tables)) or "nothing that could be a trace"
                what = "holds several files" if wanted == "." else f"holds no {wanted}"
                raise SpecError([Problem(str(archive), what, f"name one: {there}")], source=str(archive))
            found = next(each for each in opened.getmembers() if each.name.removeprefix("./") == wanted)
            file = opened.extractfile(found)
            return wanted, _all_of(file, wanted) if file else b""
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpecError(f"cannot be unpacked: {error}", source=str(archive)) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror or error}", source=str(archive)) from error


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _all_of(file: _Readable, name: str) -> bytes:
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise SpecError(f"holds more than {_MOST_BYTES // 1024**3} GiB", source=name)
    return data


def _text(data: bytes, name: str) -> str:
    """The text in a file, without the mark that says how it is encoded. Every line that is not text is told."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        encoding = "utf-16"
    else:
        encoding, data = "utf-8", data.removeprefix(BOM_UTF8)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-16":
            raise SpecError(f"is not UTF-16 text as it begins: {error.reason}", source=name) from error
    remedy = "UTF-8: iconv -f latin1 -t utf-8, if that is what it is"
    lines = enumerate(data.split(b"\n"), start=1)
    wrong = [
        Problem(f"line {number}", f"byte {at + 1} (0x{line[at]:02x}) is not UTF-8 text", remedy)
        for number, line in lines
        if (at := _first_wrong(line)) is not None
    ]
    raise SpecError(wrong, source=name)


def _first_wrong(line: bytes) -> int | None:
    """Where a line stops being UTF-8 text; None where it does not."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None
