"""A group of workers found through a torchft lighthouse: how one joins, leaves and survives it.

torchft gives the parts: its lighthouse agrees on who takes part (a *quorum*), its Manager lays a new process group for
each quorum and brings whoever is behind up to date. Every worker is a replica group of its own. This module decides
when to ask, and what to make of the answers:

* A quorum is a *lease*: steps go on without asking until rank 0's clock says so (`LEASE_S`), a step fails, or somebody
  has left. All workers come to the same decision, for it travels with the gradients.
* The lighthouse waits for every worker whose heart beats. So nobody is cut off for being slow (say, while the first
  worker evaluates), and a newcomer cannot found a group of its own beside the running one.
* Whoever leaves falls silent first, and takes part until its last heartbeat has expired; the others' next quorum then
  has nothing to wait for. A killed worker costs the others that expiry once.
* A worker whose step failed closes its connections at once, so that all others' fail too: some might otherwise wait
  in a collective for one that waits in a quorum.
* The processes of a worker (`Crew`) are one replica group: one store and one manager for all of them, and whatever one
  of them finds out counts for all once they have told each other.
* While the lighthouse is lost the workers that are there train on. Then each builds a new Manager on a new store: one
  that failed raises for ever, and a new lighthouse counts its quorums from 1 again, so that old keys in a store would
  be taken for new ones. A plain connection to the lighthouse (`_Lifeline`) tells one that was replaced.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
import warnings
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

# Read once, when torchft is imported: its lighthouse and managers log several lines a quorum.
os.environ.setdefault("RUST_LOG", "warn")

from torch import distributed
from torch._C._distributed_c10d import TCPStore
from torchft.checkpointing import HTTPTransport
from torchft.manager import Manager

from kfp_volcano.elastic.runtime.lighthouse import HEARTBEAT_TIMEOUT_S
from kfp_volcano.elastic.runtime.process_group import RENDEZVOUS_KEY, process_group
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kfp_volcano.elastic.runtime.crew import Crew

__all__ = ["LEASE_S", "SILENCE_S", "ReplicaGroup"]

LEASE_S = 0.2
"""How long workers train before they ask the lighthouse whether somebody has come: the longest wait of a newcomer."""

SILENCE_S = HEARTBEAT_TIMEOUT_S + 0.1
"""How long a leaver is silent before it parts: a heartbeat may still have been under way."""

_LOOK_S = 0.2
"""How often a worker that waits for the others looks whether they have given up."""

_RETRY_S = 0.1

_REGROUP_S = 0.3

_CUDA_POLL_S = 0.0005

_LINGER_S = 0.1
"""How long a leaver keeps its connections: data under way to the others dies with a connection that is closed."""

_COLLECTIVE_TIMEOUT = timedelta(seconds=120)
_QUORUM_TIMEOUT = timedelta(hours=1)
_QUORUM_RETRIES = 7200
_CONNECT_TIMEOUT = timedelta(seconds=10)

_log = logging.getLogger(__name__)

# torch on how torchft unpacks a peer's state; it is copied into the model right after.
warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning, "torch.distributed._serialization")

for _name in ("torchft.manager", "torchft.checkpointing", "torchft_quorums", "torchft_commits", "torchft_errors"):
    if logging.getLogger(_name).level == logging.NOTSET:
        # Several lines a quorum, five quorums a second.
        logging.getLogger(_name).setLevel(logging.WARNING)


class ReplicaGroup:
    """The workers of a Job, seen from one of their processes.

    Args:
        crew: the processes of this worker.
        flat: whether sums go over all processes of all workers; else over those of the same rank in their workers,
            for each holds a shard of the gradients. Then the processes of a worker also have states of their own.
        coordinator: host of the lighthouse.
        address: IP address by which the others reach this worker.
        name: the pod's name.
        state: gives what a newcomer needs; called while training rests.
        load: takes over another worker's state.
        cuda: whether gradients are on CUDA devices, and so go over NCCL instead of gloo.
        gone: whether this worker was told to leave: ends a wait for a lighthouse.
    """

    def __init__(
        self,
        *,
        crew: Crew,
        flat: bool,
        coordinator: str,
        address: str,
        name: str,
        state: Callable[[], dict[str, Any]],
        load: Callable[[dict[str, Any]], None],
        cuda: bool,
        gone: Callable[[], bool],
    ) -> None:
        self.rank, self.world, self.rendezvous = crew.rank, crew.size, ""
        self._crew, self._flat = crew, flat
        self._coordinator = coordinator
        self._address = address
        # The lighthouse sorts ranks by this name: the oldest worker is the first, so that it rarely changes.
        self._name = f"{int(time.time() * 1000):014d}-{name}"
        self._state, self._load, self._gone = state, load, gone
        self._fetches = crew.rank == 0 or not flat
        self._healed = False
        self._cuda = cuda
        self._store: TCPStore | None = None
        self._manager: Manager | None = None
        self._lifeline: _Lifeline | None = None
        self._pg = process_group(address, crew, flat=flat, cuda=cuda, stale=lambda: not self._lifeline_whole())
        self._fresh = False
        self._silent = False
        self._asked_at = 0.0
        self._search: threading.Thread | None = None

    def renew(self, step: int, *, patient: bool) -> bool:
        """See Group."""
        if self._crew.any(not self._lifeline_whole()):
            again = self._manager is not None
            self._disconnect()
            if not (self._crew.all(self._reach(patient=patient)) and self._crew.all(self._connect())):
                self._disconnect()
                return False
            if again:
                # The others do the same now; a lighthouse that does not know them yet would leave them out.
                time.sleep(_REGROUP_S)
        manager = self._manager
        assert manager is not None  # noqa: S101 - _connect made it
        manager.load_state_dict({"step": step, "batches_committed": 0})
        self._healed = False
        if not self._crew.all(self._ask(manager)):
            self._pg.give_up()
            self._disconnect()
            return False
        self._asked_at = time.monotonic()
        self._fresh = True
        replica, replicas = manager.participating_rank(), manager.num_participants()
        self.rank, self.world = replica * self._crew.size + self._crew.rank, replicas * self._crew.size
        if not self._crew.all(manager.errored() is None and self._pg.stands(*self.place)):
            self.settle(ok=False, reason="the process group could not be laid, or a peer's state not be fetched")
            return False
        # By the first one's store, where each process has one.
        self.rendezvous, healed = self._crew.from_first(lambda: (self._pg.rendezvous, self._healed))
        if self._flat and healed:
            self._crew.level(self._state, self._load)
        return True

    def _ask(self, manager: Manager) -> bool:
        try:
            manager.start_quorum()
        except Exception as error:  # noqa: BLE001 - whatever torchft and its RPC raise, the Manager is of no more use
            _log.warning("the quorum failed, connecting to the lighthouse again: %s", error)
            return False
        return self._lifeline_whole()

    @property
    def place(self) -> tuple[int, int]:
        """This process' rank in the sum it takes part in, and over how many processes that goes."""
        size = 1 if self._flat else self._crew.size
        return self.rank // size, self.world // size

    def due(self) -> bool:
        """See Group."""
        if time.monotonic() - self._asked_at < LEASE_S:
            return False
        if self._lifeline_whole():
            return True
        # Nobody can come or go without a lighthouse, but those who are here can train on.
        if self._search is None:
            self._search = threading.Thread(target=self._find_lighthouse, name="lighthouse search", daemon=True)
            self._search.start()
        return not self._search.is_alive()

    def add(self, tensors: list[torch.Tensor]) -> bool:
        """See Group."""
        if self.place[1] == 1:
            return True
        try:
            for work in [self._pg.allreduce([tensor], _sum()) for tensor in tensors]:
                self._wait(work)
            error = self._pg.errored()
        except RuntimeError as raised:
            error = raised
        if error is None:
            return True
        _log.info("summing over %d workers failed: %s", self.world, error)
        self._pg.give_up()
        return False

    def _wait(self, work: distributed.Work) -> None:
        """Until the work is done; raises RuntimeError once the group is broken. Being slow does not break it."""
        look_at = time.monotonic() + _LOOK_S
        while not work.is_completed():
            if self._cuda:
                time.sleep(_CUDA_POLL_S)  # a CUDA work's wait() returns before it is done
            else:
                with suppress(RuntimeError):  # it is not done yet, or it failed: wait() below tells
                    work.wait(timedelta(seconds=_LOOK_S))
            if time.monotonic() >= look_at and not work.is_completed():
                if self._pg.broken():
                    raise RuntimeError("the group was given up")
                look_at = time.monotonic() + _LOOK_S
        work.wait()

    def settle(self, *, ok: bool, reason: str = "") -> None:
        """See Group."""
        if ok and not (self._fresh and not self._silent):
            return
        self._fresh = False
        if not ok:
            self._pg.give_up()
        if self._silent or self._manager is None:
            return
        try:
            if not ok:
                self._manager.report_error(RuntimeError(reason))
            # Locks the state away from newcomers again, and counts failures: the next quorum gets a new process group.
            self._manager.should_commit()
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("lost the Manager: %s", error)
            self._disconnect()

    def fall_silent(self) -> None:
        """See Group."""
        if self._manager is not None and not self._silent:
            self._silent = True
            self._manager.shutdown(wait=False)

    def close(self) -> None:
        """See Group."""
        if self._pg.stands(*self.place) and self.place[1] > 1:
            time.sleep(_LINGER_S)
        self._disconnect()
        self._store = None

    def _reach(self, *, patient: bool) -> bool:
        """Whether the lighthouse can be reached."""
        host, port = self._coordinator, names.LIGHTHOUSE_PORT
        told = time.monotonic()
        while True:
            try:
                self._lifeline = _Lifeline(host, port)
                break
            except OSError as error:
                if not patient or self._gone():
                    return False
                if time.monotonic() - told > 10:  # noqa: PLR2004 - seconds between two complaints
                    told = time.monotonic()
                    _log.warning("waiting for the lighthouse at %s:%d: %s", host, port, error)
                time.sleep(_RETRY_S)
        return True

    def _connect(self) -> bool:
        """A new store and Manager for all processes of the worker."""
        # PyTorch looks up the name of each address it connects to; a resolver that is slow to say that a loopback
        # address has none holds every worker up. 127.0.0.1 is in /etc/hosts, and the store listens on all of them.
        store_host = "127.0.0.1" if self._address.startswith("127.") else self._address
        if self._crew.rank == 0:
            self._store = TCPStore(store_host, 0, is_master=True, wait_for_workers=False)
            self._store.set(RENDEZVOUS_KEY, uuid.uuid4().hex)
        store_port = self._crew.from_first(lambda: self._store.port if self._store else 0)
        transport = _Transport(self._address)
        self._rehearse(transport)
        try:
            self._manager = Manager(
                pg=self._pg,
                state_dict=self._given,
                load_state_dict=self._take,
                min_replica_size=1,
                use_async_quorum=False,
                timeout=_COLLECTIVE_TIMEOUT,
                quorum_timeout=_QUORUM_TIMEOUT,
                quorum_retries=_QUORUM_RETRIES,
                connect_timeout=_CONNECT_TIMEOUT,
                rank=self._crew.rank,
                world_size=self._crew.size,
                store_addr=store_host,
                store_port=store_port,
                lighthouse_addr=f"http://{self._coordinator}:{names.LIGHTHOUSE_PORT}",
                replica_id=self._name,
                hostname=self._address,
                checkpoint_transport=transport,
            )
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("no Manager: %s", error)
            self._store = None  # the siblings may wait for what only this one can write there
            return False
        return True

    def _given(self) -> dict[str, Any]:
        """What a process of the same rank in another worker needs."""
        return self._state() if self._fetches else {}

    def _take(self, state: dict[str, Any]) -> None:
        if self._fetches:
            self._load(state)
            self._healed = True

    def _rehearse(self, transport: _Transport) -> None:
        """Takes over its own state once, for the first time takes far longer, and all others wait then."""
        if not self._fetches:
            return
        transport.send_checkpoint([0], 0, self._state(), _COLLECTIVE_TIMEOUT)
        self._load(transport.recv_checkpoint(0, transport.metadata(), 0, _COLLECTIVE_TIMEOUT))
        transport.disallow_checkpoint()

    def _find_lighthouse(self) -> None:
        found = None
        while found is None:
            time.sleep(_RETRY_S)
            with suppress(OSError):
                found = _Lifeline(self._coordinator, names.LIGHTHOUSE_PORT)
        found.close()

    def _lifeline_whole(self) -> bool:
        return self._lifeline is not None and self._lifeline.whole()

    def _disconnect(self) -> None:
        self._pg.abort()
        if self._manager is not None and not self._silent:
            self._manager.shutdown(wait=False)
        if self._lifeline is not None:
            self._lifeline.close()
        self._manager, self._lifeline, self._search, self._fresh = None, None, None, False


def _sum() -> distributed.AllreduceOptions:
    options = distributed.AllreduceOptions()
    options.reduceOp = distributed.ReduceOp.SUM
    options.timeout = _COLLECTIVE_TIMEOUT
    return options


class _Lifeline:
    """An idle connection to the lighthouse's process: it breaks when that process ends."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT.total_seconds())
        self._socket.settimeout(0)

    def whole(self) -> bool:
        """Whether the process that was connected to still runs."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Lets go."""
        self._socket.close()


class _Transport(HTTPTransport[dict[str, Any]]):  # type: ignore[misc]
    """torchft's way of handing state over, by the pod's address: its host name means nothing to other pods."""

    def __init__(self, address: str) -> None:
        self._host = address
        super().__init__(timeout=_COLLECTIVE_TIMEOUT, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None  # no access log on standard error

    def address(self) -> str:
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"
