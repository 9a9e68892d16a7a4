# SPDX-License-Identifier: Apache-2.0
"""Where checkpoints are: a folder on a volume, or a place behind a URL that fsspec reaches (S3, GCS, …).

Both give one promise: a file is under its name only when it is whole, or its digest tells. Nothing is renamed but
single files on a volume, for object stores cannot; so a checkpoint counts from the moment its manifest is there, which
is written last.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import fsspec

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Folder", "Remote", "Store", "open_store"]

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
"""Which extra of this package brings the client of a URL's scheme."""


class Store(Protocol):
    """Files in folders, which may have folders in them. Everything raises OSError where the storage refuses."""

    where: str
    """For messages: path or URL."""

    def folders(self) -> list[str]:
        """Names of the outermost folders there are; an empty list where there is nothing at all yet."""

    def exists(self, path: str) -> bool:
        """Whether a file `folder/name` is there."""

    def writing(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file `folder/name`, on stable storage when the block ends well."""

    def reading(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file's bytes."""

    def local(self, path: str) -> AbstractContextManager[Path]:
        """A file as one of this machine, fetched where it has to be, for as long as the block lasts."""

    def remove(self, folder: str) -> None:
        """Removes a folder with what is in it, the manifest first; none where it is gone already."""


class Folder:
    """A folder on a volume.

    Args:
        path: made where it is missing, once something is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = str(path)

    def folders(self) -> list[str]:
        """See Store."""
        return [entry.name for entry in self._path.iterdir() if entry.is_dir()] if self._path.is_dir() else []

    def exists(self, path: str) -> bool:
        """See Store."""
        return (self._path / path).exists()

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """See Store. Forced to the disk under another name, then renamed, and the folder forced too."""
        target = self._path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
        try:
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            for folder in target.parents:
                _sync(folder)
                if folder == self._path:
                    break
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    @contextmanager
    def reading(self, path: str) -> Iterator[IO[bytes]]:
        """See Store."""
        with (self._path / path).open("rb") as file:
            yield file

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """See Store."""
        yield self._path / path

    def remove(self, folder: str) -> None:
        """See Store."""
        path = self._path / folder
        with suppress(FileNotFoundError):
            (path / "manifest.json").unlink()
        shutil.rmtree(path, ignore_errors=True)


class Remote:
    """A place behind a URL, reached by fsspec.

    Credentials and endpoints come from where each client looks for them (`AWS_…` variables, service accounts) and from
    fsspec's own variables, such as `FSSPEC_S3_ENDPOINT_URL`.

    Args:
        url: with its scheme: `s3://bucket/prefix`.

    Raises:
        SpecError: the scheme is unknown, or its client is not installed; then with the extra that brings it.
    """

    def __init__(self, url: str) -> None:
        self.where = url
        scheme = url.partition("://")[0]
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            extra = _EXTRAS.get(scheme)
            remedy = f"pip install 'kfp-volcano[{extra}]'" if extra else "a scheme of fsspec, with its client installed"
            raise SpecError([Problem("checkpoint.url", f"{url} cannot be reached: {error}", remedy)]) from error

    def folders(self) -> list[str]:
        """See Store."""
        with self._failing():
            try:
                # What another worker wrote must be seen.
                self._fs.invalidate_cache()
                entries = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
        return [entry["name"].rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"]

    def exists(self, path: str) -> bool:
        """See Store."""
        with self._failing():
            self._fs.invalidate_cache()
            return bool(self._fs.exists(f"{self._root}/{path}"))

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """See Store. An object is there when its upload has ended."""
        with self._failing():
            target = f"{self._root}/{path}"
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            with self._fs.open(target, "wb") as file:
                yield file

    @contextmanager
    def reading(self, path: str) -> Iterator[IO[bytes]]:
        """See Store."""
        with self._failing(), self._fs.open(f"{self._root}/{path}", "rb") as file:
            yield file

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """See Store."""
        with tempfile.TemporaryDirectory(prefix="kfp-volcano-") as folder:
            target = Path(folder) / "file"
            with self._failing():
                self._fs.get_file(f"{self._root}/{path}", str(target))
            yield target

    def remove(self, folder: str) -> None:
        """See Store."""
        with self._failing():
            for path in (f"{self._root}/{folder}/manifest.json", f"{self._root}/{folder}"):
                with suppress(FileNotFoundError):
                    self._fs.rm(path, recursive=True)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever a client raises (each has errors of its own) becomes OSError."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"{self.where}: {error}") from error


def open_store(place: str | Path) -> Folder | Remote:
    """The store at a path or a URL. Raises SpecError where a URL cannot be used."""
    text = str(place)
    return Remote(text.rstrip("/")) if "://" in text else Folder(Path(text))


def _sync(folder: Path) -> None:
    descriptor: Any = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
