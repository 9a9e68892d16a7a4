# SPDX-License-Identifier: Apache-2.0
"""Pieces of sharded tensors on storage, as `torch.distributed.checkpoint` has them: a folder that its tools read too.

Each process writes a file, and the first one the `.metadata` that tells what is where. Any number of processes reads
it, each what it needs.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from kfp_volcano.elastic.runtime.checkpoints.manifest import Digesting, Written

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import torch

    from kfp_volcano.elastic.runtime.checkpoints.pieces import Piece
    from kfp_volcano.elastic.runtime.checkpoints.store import Store
    from kfp_volcano.elastic.runtime.checkpoints.together import Together

__all__ = ["read_into", "write_pieces"]


def write_pieces(store: Store, folder: str, pieces: Mapping[str, Piece], together: Together) -> dict[str, Written]:
    """Writes the pieces of all processes into a folder; returns the files this process wrote, by path in the store.

    Raises OSError in all processes where the storage refused one.
    """
    writer = FileSystemWriter(folder, sync_files=False)  # the store does that
    files = _Files(store)
    writer.fs, writer.path = files, folder  # type: ignore[assignment]
    try:
        save(dict(pieces), storage_writer=writer, planner=_Planner(pieces), process_group=together.group)
    except CheckpointException as error:
        raise OSError("; ".join(f"process {rank}: {each[0]}" for rank, each in error.failures.items())) from error
    return files.written


def read_into(store: Store, folder: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fills tensors, whole ones or sharded ones, with what a folder has under their names.

    Raises:
        OSError: the storage refused it.
        RuntimeError: the folder has no such tensors.
    """
    reader = FileSystemReader(folder)
    reader.fs, reader.path = _Files(store), folder  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that each process reads for itself, as it shall
        try:
            load(dict(tensors), storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            for cause, _ in error.failures.values():
                if isinstance(cause, OSError):
                    raise cause from error
            raise RuntimeError(f"the shards do not fit: {error}") from error


class _Planner(DefaultSavePlanner):
    """Plans what to write of pieces, instead of tensors that are on devices."""

    def __init__(self, pieces: Mapping[str, Piece]) -> None:
        super().__init__()
        self._pieces = pieces

    def create_local_plan(self) -> SavePlan:
        items = [
            WriteItem(
                index=MetadataIndex(name, piece.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=ChunkStorageMetadata(piece.offsets, piece.tensor.shape),
                    properties=TensorProperties.create_from_tensor(piece.tensor),
                    size=piece.whole,
                ),
            )
            for name, piece in self._pieces.items()
            if piece.tensor.numel()  # of a small tensor a process may have nothing
        ]
        self.plan = SavePlan(items, planner_data=self.mappings)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self._pieces[index.fqn].tensor


class _Files(FileSystemBase):
    """A store as PyTorch's writer and reader see files; `written` keeps what they wrote."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written: dict[str, Written] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        if mode == "rb":
            with self._store.reading(str(path)) as file:
                yield file
            return
        # A store has a file under its name only when it is whole: it needs no other name before.
        target = str(path).removesuffix(".tmp")
        with self._store.writing(target) as raw:
            stream = _Stream(raw)
            yield stream
        self.written[target] = stream.written

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """See create_stream."""

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{path}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return str(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """A store's folders are there when something is in them."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        del path
        return False  # what an earlier try left is written over

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """See exists."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        del checkpoint_id
        return True


class _Stream(Digesting):
    """A file being written, with what PyTorch asks of it beside."""

    def tell(self) -> int:
        return self.written.size or 0

    def close(self) -> None:
        """The store does."""
