# SPDX-License-Identifier: Apache-2.0
"""A copy of a training's state in memory of its own, made while training goes on.

Only an update changes the tensors of a model and its optimizer. So they are copied while the gradients of the next step
are computed, and the update waits for what is left: CheckFreq's pipelining of snapshots (Mohan et al., FAST 2021).
The copies go into the same memory each time, pinned where the originals are on a CUDA device.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime.checkpoints.pieces import Piece
from kfp_volcano.elastic.runtime.shards import is_sharded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.elastic.runtime.checkpoints.pieces import Place

__all__ = ["Buffers", "Snapshot", "copy_to_cpu"]


class Buffers:
    """Memory for one snapshot at a time."""

    def __init__(self) -> None:
        self._tensors: dict[Place, torch.Tensor] = {}

    def like(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """Memory on the CPU for a tensor that stands at a place of the state; the same one as last time if it fits."""
        known = self._tensors.get(place)
        if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype:
            known = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
            self._tensors[place] = known
        return known


class Snapshot:
    """The state at the moment of its making, once `copied`.

    Args:
        state: containers of tensors and plain values. Containers and values are copied at once. Of sharded tensors
            the pieces of this process are taken.
        buffers: what no other snapshot uses.
    """

    def __init__(self, state: Any, buffers: Buffers) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._same: dict[Place, torch.Tensor] = {}
        self._done = threading.Event()
        self.state = self._laid_out(state, (), buffers)
        """Whole when `copied` returns."""

    def copy(self, then: Callable[[], None] | None = None) -> None:
        """Copies the tensors; where there is something to do `then`, in a thread of its own, which does that next."""
        ready = {device: torch.cuda.current_stream(device).record_event() for device in self._devices()}
        if then is None:
            self._copy(ready)
            return

        def run() -> None:
            self._copy(ready)
            then()

        threading.Thread(target=run, name="checkpoint").start()

    def copied(self) -> None:
        """Waits until the originals may change."""
        self._done.wait()

    def _copy(self, ready: Mapping[torch.device, torch.cuda.Event]) -> None:
        """On streams of their own, beside what the device computes meanwhile."""
        streams = {device: torch.cuda.Stream(device) for device in ready}  # type: ignore[no-untyped-call]
        try:
            for device, stream in streams.items():
                stream.wait_event(ready[device])
            with torch.no_grad():
                for original, copy in self._pairs:
                    with torch.cuda.stream(streams.get(original.device)):
                        copy.copy_(original, non_blocking=True)
            for stream in streams.values():
                stream.synchronize()
        finally:
            self._pairs.clear()
            self._done.set()

    def _devices(self) -> set[torch.device]:
        return {original.device for original, _ in self._pairs if original.device.type == "cuda"}

    def _laid_out(self, value: Any, place: Place, buffers: Buffers) -> Any:
        if is_sharded(value):
            (chunk,) = value.__create_chunk_list__()
            return Piece(self._laid_out(value.to_local(), place, buffers), value.shape, chunk.offsets)
        if isinstance(value, torch.Tensor):
            # Weights that share memory, like tied embeddings, do so in the checkpoint.
            memory = value.untyped_storage().data_ptr(), value.storage_offset(), value.shape, value.stride()
            known = self._same.get(memory) if value.numel() else None
            if known is None:
                known = self._same[memory] = buffers.like(place, value)
                self._pairs.append((value.detach(), known))
            return known
        if isinstance(value, dict):
            return {key: self._laid_out(item, (*place, key), buffers) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._laid_out(item, (*place, index), buffers) for index, item in enumerate(value))
        return value


def copy_to_cpu(value: Any) -> Any:
    """The value with every tensor in it copied to the CPU, into memory of its own."""
    snapshot = Snapshot(value, Buffers())
    snapshot.copy()
    return snapshot.state
