# SPDX-License-Identifier: Apache-2.0
"""The processes of one worker: one for each of its GPUs, started together by torchrun, ending together.

To the other workers they are one: they come, commit and leave together. So what one of them decides from something that
only it can know (a signal, a clock, an error) it first agrees on with its siblings. That goes through a gloo group of
their own beside the default one, which the training code may use for its collectives (FSDP's, over NCCL).
"""

from __future__ import annotations

import logging
import os
import select
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore

from kfp_volcano.elastic.runtime.checkpoints.snapshot import copy_to_cpu
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["BROKEN", "Crew", "worker_device", "worker_mesh"]

T = TypeVar("T")

BROKEN = 1
"""Exit code of a process that lost a sibling: torchrun starts all of them again."""

_PATIENCE = timedelta(hours=1)
"""For a sibling that is slow, say evaluates; one that has died is noticed at once."""

_log = logging.getLogger(__name__)


class Crew:
    """The processes of this worker, seen from one of them; all must make the same calls in the same order.

    Args:
        rank: this process' among them, torchrun's LOCAL_RANK.
        size: how many they are; with one, nothing is sent.

    Raises:
        SpecError: torch.distributed was initialised over other processes than these.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self._parted = False
        if size == 1:
            return
        _initialise()
        if distributed.get_world_size() != size:
            raise SpecError(
                [
                    Problem(
                        "WORLD_SIZE",
                        f"torch.distributed joins {distributed.get_world_size()} processes, a worker has {size}",
                        "start each worker's processes by a torchrun of its own, --nnodes=1",
                    )
                ],
                source="environment",
            )
        self._group: Any = distributed.new_group(backend="gloo", timeout=_PATIENCE)
        pids = [int(pid) for [pid] in self.gather([float(os.getpid())])]
        siblings = [pid for pid in pids if pid != os.getpid()]
        threading.Thread(target=self._watch, args=(siblings,), name="siblings", daemon=True).start()

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Everybody's numbers, by rank; all send equally many."""
        if self.size == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.float64)
        everybody = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            distributed.all_gather(everybody, mine, group=self._group)
        except RuntimeError as error:
            self._end(error)
        return [each.tolist() for each in everybody]

    def any(self, value: bool) -> bool:  # noqa: FBT001 - the truth itself
        """Whether it is true for one of them."""
        return value if self.size == 1 else any(each for [each] in self.gather([float(value)]))

    def all(self, value: bool) -> bool:  # noqa: FBT001 - as above
        """Whether it is true for all of them."""
        return value if self.size == 1 else all(each for [each] in self.gather([float(value)]))

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns in the first one, where alone it is called, in all of them."""
        if self.size == 1:
            return make()
        box: list[Any] = [make() if self.rank == 0 else None]
        try:
            distributed.broadcast_object_list(box, group_src=0, group=self._group)
        except RuntimeError as error:
            self._end(error)
        made: T = box[0]
        return made

    def level(self, state: Callable[[], dict[str, Any]], load: Callable[[dict[str, Any]], None]) -> None:
        """All take over the first one's state, which `state` gives there."""
        if self.size > 1:
            given = self.from_first(lambda: copy_to_cpu(state()))  # or it would come on the first one's GPU
            if self.rank > 0:
                load(given)

    def aside(self) -> Any:
        """A group of these processes for a thread of its own in each; None where there is one process."""
        return None if self.size == 1 else distributed.new_group(backend="gloo", timeout=_PATIENCE)

    def part(self) -> None:
        """Waits for all; from now on each may end when it likes."""
        if self.size > 1 and not self._parted:
            self.gather([0.0])
            self._parted = True

    def _watch(self, siblings: Sequence[int]) -> None:
        # Whoever waits for a dead sibling in a collective of NCCL's, or in torchft's Manager, would wait for long.
        ends = select.poll()
        try:
            for pid in siblings:
                ends.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError as error:
            self._end(error)
        ends.poll()
        self._end()

    def _end(self, error: Exception | None = None) -> None:
        if self._parted:
            return
        _log.info("talking with the other processes of this worker failed: %s", error)
        _log.error("another process of this worker was lost, so this one ends")
        # At once and without a last step: the siblings that are left might wait for each other in different places.
        os._exit(BROKEN)


def worker_device() -> torch.device:
    """The device of this process, made the current one: the GPU of its rank in the worker, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def worker_mesh() -> DeviceMesh:
    """The processes of this worker as a mesh of one dimension, for `fully_shard(model, mesh=worker_mesh())`."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - a second, for those who shard alone

    device = worker_device()
    _initialise()
    return init_device_mesh(device.type, (distributed.get_world_size(),))


def _initialise() -> None:
    """The default process group, unless the training code has one: gloo for the CPU, NCCL for GPUs."""
    if distributed.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if "LOCAL_WORLD_SIZE" in os.environ:
        distributed.init_process_group(backend, device_id=worker_device() if torch.cuda.is_available() else None)
    else:  # a plain process is its worker's only one
        distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
