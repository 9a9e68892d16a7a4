# SPDX-License-Identifier: Apache-2.0
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
* No step commits that the lighthouse would not allow: two sides of a network that was cut can never both train. The
  lighthouse founds no other group while it hears the hearts of this one, so until shortly before they would have
  expired since the last quorum nothing is to be asked; a step that took longer asks before its gradients are summed
  (`holds`), and is done again where another group was founded, or no answer came.
* An answer may be lost on its way to one worker. Then that one waits for a quorum, and the others, who have theirs,
  for it in a sum; they say so in the group's store, and the one who finds it there gives the group up, so that all ask.
* So training rests while the lighthouse is lost. Then each worker builds a new Manager on a new store: one that failed
  raises for ever, and a new lighthouse counts its quorums from 1 again, so that old keys in a store would be taken for
  new ones. A `Contact` tells one that was replaced, and one that was cut off without a word.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch import distributed

from kfp_volcano.elastic.runtime.contact import Contact
from kfp_volcano.elastic.runtime.lighthouse import HEARTBEAT_TIMEOUT_S
from kfp_volcano.elastic.runtime.manager import (
    COLLECTIVE_TIMEOUT,
    Transport,
    ask_again,
    ask_for_quorum,
    new_manager,
    new_store,
)
from kfp_volcano.elastic.runtime.process_group import process_group

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch._C._distributed_c10d import TCPStore

    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.lifeline import Standing
    from kfp_volcano.elastic.runtime.manager import Manager

__all__ = ["LEASE_S", "SILENCE_S", "ReplicaGroup"]

LEASE_S = 0.2
"""How long workers train before they ask the lighthouse whether somebody has come: the longest wait of a newcomer."""

SILENCE_S = HEARTBEAT_TIMEOUT_S + 0.1
"""How long a leaver is silent before it parts: a heartbeat may still have been under way."""

_LOOK_S = 0.2
"""How often a worker that waits for the others looks whether they have given up."""

_REGROUP_S = 0.3

_SURE_S = HEARTBEAT_TIMEOUT_S - 0.2
"""For so long after a quorum no other group can have been founded: the lighthouse waits for hearts to expire."""

_CUT_OFF_S = 3.0
"""A worker whose heart was not heard for so long is not slow: it is dead, stopped or cut off."""

_ASK_S = 1.0
"""How often one that has waited so long asks the lighthouse."""

_ASKING = 2

_CUDA_POLL_S = 0.0005

_LINGER_S = 0.1
"""How long a leaver keeps its connections: data under way to the others dies with a connection that is closed."""

_log = logging.getLogger(__name__)


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
        events: is told when the coordinator is lost, and when it is back.
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
        events: Events,
    ) -> None:
        self.rank, self.world, self.rendezvous = crew.rank, crew.size, ""
        self._crew, self._flat = crew, flat
        self._coordinator = coordinator
        self._address = address
        self._pod, self._name = name, ""
        self._state, self._load = state, load
        self._fetches = crew.rank == 0 or not flat
        self._healed = False
        self._cuda = cuda
        self._silent = False
        self._contact = Contact(
            coordinator, gone=gone, tells=lambda: crew.rank == 0 and not self._silent, events=events
        )
        self._store: TCPStore | None = None
        self._manager: Manager | None = None
        self._pg = process_group(address, crew, flat=flat, cuda=cuda, stale=lambda: not self._contact.whole)
        self._fresh = False
        self._asked_at = 0.0
        self._sure_at = 0.0
        self.parting = False
        self._work = 0
        """How many sums the present group has begun."""

    def renew(self, step: int, *, patient: bool) -> bool:
        """See Group."""
        if self._crew.any(not self._contact.whole):
            again = self._manager is not None
            self._disconnect()
            if not (self._crew.all(self._contact.seek(patient=patient)) and self._crew.all(self._connect())):
                self._disconnect()
                return False
            if again:
                # The others do the same now; a lighthouse that does not know them yet would leave them out.
                time.sleep(_REGROUP_S)
            self._contact.restored()
        manager = self._manager
        assert manager is not None  # noqa: S101 - _connect made it
        manager.load_state_dict({"step": step, "batches_committed": 0})
        self._healed = False
        if not self._crew.all(self._quorum(manager)):
            self._pg.give_up()
            self._disconnect()
            return False
        self._asked_at = self._sure_at = time.monotonic()
        self._fresh, self.parting = True, False
        replica, replicas = manager.participating_rank(), manager.num_participants()
        self.rank, self.world = replica * self._crew.size + self._crew.rank, replicas * self._crew.size
        if not self._crew.all(manager.errored() is None and self._pg.stands(*self.place)):
            self.settle(ok=False, reason="the process group could not be laid, or a peer's state not be fetched")
            return False
        # By the first one's store, where each process has one.
        rendezvous, healed = self._crew.from_first(lambda: (self._pg.rendezvous, self._healed))
        if self.rendezvous != rendezvous:
            self._work = 0
            self._sure_at = 0.0  # laying the group and taking over the state took what time it took: ask
        self.rendezvous = rendezvous
        if self._flat and healed:
            self._crew.level(self._state, self._load)
        return True

    def _quorum(self, manager: Manager) -> bool:
        found = ask_for_quorum(manager)
        # Others take their time, or nothing that was sent has arrived. The processes of a crew do not ask again one by
        # one, for they would have to agree on it.
        while found is None and self._crew.size == 1 and self._contact.ask_or_lose() is not None:
            if self._pg.waited_for(self._work + 1):
                # They are further: only this worker has not heard of the quorum, and they wait for it in the next sum.
                # A new Manager, for of this one requests may be left that are answered in place of later ones.
                _log.warning("the answer to a request for a quorum was lost: all ask again")
                return False
            found = ask_again(manager)
        return bool(found) and self._contact.whole

    @property
    def place(self) -> tuple[int, int]:
        """This process' rank in the sum it takes part in, and over how many processes that goes."""
        size = 1 if self._flat else self._crew.size
        return self.rank // size, self.world // size

    def due(self) -> bool:
        """See Group."""
        return time.monotonic() - self._asked_at >= LEASE_S

    def holds(self) -> bool:
        """See Group."""
        # Two workers do, for one may be leaving and unheard; more would only keep the lighthouse busy.
        asks = self._crew.rank == 0 and self.rank // self._crew.size < _ASKING
        if not asks or self._silent or time.monotonic() - self._sure_at < _SURE_S:
            return True
        began = time.monotonic()
        standing = self._contact.ask_or_lose()
        if standing is None or not self._is_ours(standing):
            return False
        self._sure_at = began
        return True

    def _is_ours(self, standing: Standing) -> bool:
        # A lighthouse that was started anew counts from 1 again, but has not this worker in its quorum. A Manager adds
        # a colon and an identity of its own to the worker's name.
        members = {name.partition(":")[0] for name in standing.silent_s}
        return standing.quorum == self._pg.quorum and self._name in members

    def add(self, tensors: list[torch.Tensor]) -> bool:
        """See Group."""
        if self.place[1] == 1:
            return True
        self._work += 1
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

    def waited_for(self) -> bool:
        """See Group."""
        return self.place[1] == 1 or self._pg.waited_for(self._work + 1)

    def _wait(self, work: distributed.Work) -> None:
        """Until the work is done; raises RuntimeError once the group is broken. Being slow does not break it."""
        began = time.monotonic()
        look_at = began + _LOOK_S
        while not work.is_completed():
            if self._cuda:
                time.sleep(_CUDA_POLL_S)  # a CUDA work's wait() returns before it is done
            else:
                with suppress(RuntimeError):  # it is not done yet, or it failed: wait() below tells
                    work.wait(timedelta(seconds=_LOOK_S))
            if time.monotonic() >= look_at and not work.is_completed():
                if self._pg.broken():
                    raise RuntimeError("the group was given up")
                if time.monotonic() - began > _CUT_OFF_S and not self.parting and (why := self._torn()):
                    raise RuntimeError(why)
                self._pg.wait_for_others(self._work)
                look_at = time.monotonic() + (_LOOK_S if time.monotonic() - began < _CUT_OFF_S else _ASK_S)
        work.wait()

    def _torn(self) -> str:
        """Why those that this worker waits for will not come; empty where they are only slow."""
        standing = self._contact.ask()
        if standing is None:
            return ""  # the store tells, where it is another's; where it is this one's the lighthouse will be back
        if not self._is_ours(standing):
            return "another group was founded"
        lost = [name for name, silent_s in standing.silent_s.items() if silent_s > _CUT_OFF_S]
        return f"nothing was heard of {', '.join(lost)}" if lost else ""

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
        self._pg.end()
        self._store = None

    def _connect(self) -> bool:
        """A new store and Manager for all processes of the worker."""
        # The lighthouse sorts ranks by this name: the oldest worker is the first, so that it rarely changes. By the
        # lighthouse's clock, for those of two nodes need not agree; newcomers of one second have the pods' order.
        self._name = self._crew.from_first(lambda: self._name or f"{self._contact.born:012d}-{self._pod}")
        if self._crew.rank == 0:
            self._store = new_store(self._address)
        transport = Transport(self._address)
        self._rehearse(transport)
        self._manager = new_manager(
            name=self._name,
            coordinator=self._coordinator,
            address=self._address,
            store_port=self._crew.from_first(lambda: self._store.port if self._store else 0),
            crew=self._crew,
            group=self._pg,
            transport=transport,
            give=self._given,
            take=self._take,
        )
        if self._manager is None:
            self._store = None  # the siblings may wait for what only this one can write there
        return self._manager is not None

    def _given(self) -> dict[str, Any]:
        """What a process of the same rank in another worker needs."""
        return self._state() if self._fetches else {}

    def _take(self, state: dict[str, Any]) -> None:
        if self._fetches:
            self._load(state)
            self._healed = True

    def _rehearse(self, transport: Transport) -> None:
        """Takes over its own state once, for the first time takes far longer, and all others wait then."""
        if not self._fetches:
            return
        transport.send_checkpoint([0], 0, self._state(), COLLECTIVE_TIMEOUT)
        self._load(transport.recv_checkpoint(0, transport.metadata(), 0, COLLECTIVE_TIMEOUT))
        transport.disallow_checkpoint()

    def _disconnect(self) -> None:
        self._pg.abort()
        if self._manager is not None and not self._silent:
            self._manager.shutdown(wait=False)
        self._contact.close()
        self._manager, self._fresh = None, False


def _sum() -> distributed.AllreduceOptions:
    options = distributed.AllreduceOptions()
    options.reduceOp = distributed.ReduceOp.SUM
    options.timeout = COLLECTIVE_TIMEOUT
    return options
