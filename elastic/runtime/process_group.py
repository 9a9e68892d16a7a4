# SPDX-License-Identifier: Apache-2.0
"""torchft's process groups, with an identity and on the pod's own address."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torchft.process_group import ProcessGroupGloo, ProcessGroupNCCL, ProcessGroupWrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.runtime.crew import Crew

__all__ = ["RENDEZVOUS_KEY", "process_group"]

RENDEZVOUS_KEY = "kfp-volcano/rendezvous"
"""In each worker's store: a name that no other store has, though it may come to the same address."""

_RENDEZVOUS_TIMEOUT = timedelta(seconds=3)
"""For workers to find each other in a new group; one that dies at that moment keeps the others waiting so long."""

_BROKEN_KEY = "broken"
_WAITING_KEY = "waiting/{}"
_LOOK_S = 0.1
_ANSWER_S = 3.0
_CLOSING_S = 3.0
"""How long a process that ends waits for connections that are being closed."""

_log = logging.getLogger(__name__)


class _Identified(ProcessGroupWrapper):  # type: ignore[misc]
    """Knows which rendezvous it stands on."""

    rendezvous = ""
    crew: Crew
    flat = True
    """Whether all processes of all workers are in one group; else those of the same rank in their workers are."""
    quorum = 0
    """The lighthouse's number for the quorum it was laid for."""
    _place: tuple[int, int] | None = None
    address = ""
    """IP address to be reached by."""
    stale: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the lighthouse that called for this group is gone: its members will not come then."""
    _shared: Any = None
    closing: list[threading.Thread]
    """Close connections that were given up."""

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, quorum_id: int | None = None, *rest: Any
    ) -> None:
        self.abort(errored=False)
        self._group_rank, self._group_world_size, _ = rest
        if self.flat:
            # Each process of a worker is given a store of its own, for a group of its own.
            store_addr = self.crew.from_first(lambda: store_addr)
            rank, world_size = rank * self.crew.size + self.crew.rank, world_size * self.crew.size
            self._group_rank, self._group_world_size = 0, 1
        address, _, prefix = store_addr.partition("/")
        host, _, port = address.rpartition(":")
        store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_RENDEZVOUS_TIMEOUT)
        self.rendezvous = f"{_promptly(store.get, RENDEZVOUS_KEY).decode()}/{prefix}"
        self._replica_id, self._quorum_id, self._rank = replica_id, quorum_id, rank
        self.quorum = quorum_id or 0
        # torchft's are the digits at the end of pod names, the same for two tasks' pods.
        self._global_ranks = list(range(world_size))
        if world_size > 1:
            self._shared = PrefixStore(prefix, store)
            if self.stale():
                self.give_up()
                raise RuntimeError("the lighthouse was replaced")
            self._pg = self._create_pg(self._shared, rank, world_size)
        self._place = (rank, world_size)

    def stands(self, rank: int, world: int) -> bool:
        """Whether the group is laid, for this rank of so many workers."""
        return self._place == (rank, world)

    def broken(self) -> bool:
        """Whether somebody has given the group up, or the worker that keeps its store is gone, or cut off from here."""
        try:
            return self._shared is None or bool(_promptly(self._shared.check, [_BROKEN_KEY]))
        except RuntimeError:
            return True

    def wait_for_others(self, work: int) -> None:
        """Tells those who have not begun the group's work of this number that somebody waits for them."""
        with suppress(RuntimeError):  # `broken` tells
            if self._shared is not None:
                _promptly(self._shared.set, _WAITING_KEY.format(work), "1")

    def waited_for(self, work: int) -> bool:
        """Whether somebody waits in the group's work of this number."""
        try:
            return self._shared is not None and bool(_promptly(self._shared.check, [_WAITING_KEY.format(work)]))
        except RuntimeError:
            return False

    def give_up(self) -> None:
        """Closes this worker's connections and tells the others, who may wait in a collective for one that is dead."""
        with suppress(RuntimeError):  # the store went with the worker that kept it, which is as good a sign
            if self._shared is not None:
                _promptly(self._shared.set, _BROKEN_KEY, "1")
        self.abort()

    def abort(self, errored: bool = True) -> None:  # noqa: FBT001, FBT002 - torchft's
        self._place = self._shared = None
        super().abort(errored=errored)

    def end(self) -> None:
        """Closes the connections for good, and waits until they are closed, within limits.

        A thread that comes back from C++ while Python ends takes the process with it: SIGABRT instead of its exit code.
        """
        self.abort()
        deadline = time.monotonic() + _CLOSING_S
        for thread in self.closing:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Gloo(_Identified, ProcessGroupGloo):  # type: ignore[misc]
    def abort(self, errored: bool = True) -> None:  # noqa: FBT001, FBT002 - torchft's
        # Neither abort nor the destructor may run here: both can wait for a collective that will only end by its
        # timeout, when several workers close their connections at the same time.
        if self._pg is not None:
            last_reference = [self._pg]
            self._pg = None
            thread = threading.Thread(target=_end, args=(last_reference,), name="gloo abort", daemon=True)
            self.closing = [*(each for each in self.closing if each.is_alive()), thread]
            thread.start()
        super().abort(errored=errored)

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        # Laid in a thread of its own, for gloo waits its timeout for each peer that does not come.
        laid: list[Any] = []
        thread = threading.Thread(target=self._lay, args=(laid, store, rank, world_size), name="gloo", daemon=True)
        thread.start()
        deadline = time.monotonic() + _RENDEZVOUS_TIMEOUT.total_seconds()
        thread.join(_LOOK_S)
        while thread.is_alive() and not self.broken() and time.monotonic() < deadline:
            thread.join(_LOOK_S)
        if not laid:
            raise RuntimeError(f"{world_size} workers did not find each other")
        return laid.pop()

    def _lay(self, laid: list[Any], store: Any, rank: int, world_size: int) -> None:
        # Only private options name an address to listen on: GLOO_SOCKET_IFNAME wants an interface.
        gloo: Any = distributed.ProcessGroupGloo
        options = gloo._Options()  # noqa: SLF001
        options._devices = [gloo.create_device(hostname=self.address)]  # noqa: SLF001
        options._timeout = _RENDEZVOUS_TIMEOUT  # noqa: SLF001
        kind = distributed.ProcessGroup.BackendType.GLOO
        group: Any = distributed.ProcessGroup(store, rank, world_size)
        group._set_default_backend(kind)  # noqa: SLF001
        try:
            backend = gloo(store, rank, world_size, options)
        except RuntimeError as error:
            _log.info("laying a group of %d workers failed: %s", world_size, error)
            return
        group._register_backend(torch.device("cpu"), kind, backend)  # noqa: SLF001
        laid.append(group)


def _promptly(operation: Callable[..., Any], *arguments: Any) -> Any:
    """What a store's operation returns; RuntimeError where it takes too long: a store has no timeout for an answer."""
    answers: list[Any] = []
    failures: list[RuntimeError] = []

    def ask() -> None:
        try:
            answers.append(operation(*arguments))
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=ask, name="store", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    if answers:
        return answers[0]
    raise failures[0] if failures else RuntimeError("the group's store does not answer")


def _end(last_reference: list[Any]) -> None:
    last_reference.pop().abort()


class _Nccl(_Identified, ProcessGroupNCCL):  # type: ignore[misc]
    pass


def process_group(address: str, crew: Crew, *, flat: bool, cuda: bool, stale: Callable[[], bool]) -> Any:
    """A process group that torchft can lay again for each quorum: NCCL for CUDA gradients, gloo on `address` else."""
    # NCCL has one timeout for the rendezvous and the collectives, which wait for whoever is slow.
    group = _Nccl(timeout=timedelta(seconds=120)) if cuda else _Gloo(timeout=_RENDEZVOUS_TIMEOUT)
    group.address, group.stale, group.crew, group.flat, group.closing = address, stale, crew, flat, []
    return group
