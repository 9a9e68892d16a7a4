# SPDX-License-Identifier: Apache-2.0
"""torchft's Manager, as a worker of ours needs it: its store, its timeouts, its way of handing state over."""

from __future__ import annotations

import logging
import os
import uuid
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

# Read once, when torchft is imported: its lighthouse and managers log several lines a quorum.
os.environ.setdefault("RUST_LOG", "warn")

from torch._C._distributed_c10d import TCPStore
from torchft.checkpointing import HTTPTransport
from torchft.manager import Manager

from kfp_volcano.elastic.runtime.process_group import RENDEZVOUS_KEY
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchft.process_group import ProcessGroup

    from kfp_volcano.elastic.runtime.crew import Crew

__all__ = ["COLLECTIVE_TIMEOUT", "Manager", "Transport", "ask_again", "ask_for_quorum", "new_manager", "new_store"]

COLLECTIVE_TIMEOUT = timedelta(seconds=120)

_QUORUM_TIMEOUT = timedelta(seconds=5)
"""For a quorum, before a worker looks whether there still is a lighthouse to give one."""
_CREW_QUORUM_TIMEOUT = timedelta(minutes=1)
_QUORUM_RETRIES = 40
_CONNECT_TIMEOUT = timedelta(seconds=10)

_log = logging.getLogger(__name__)

# torch on how torchft unpacks a peer's state; it is copied into the model right after.
warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning, "torch.distributed._serialization")

for _name in ("torchft.manager", "torchft.checkpointing", "torchft_quorums", "torchft_commits", "torchft_errors"):
    if logging.getLogger(_name).level == logging.NOTSET:
        # Several lines a quorum, five quorums a second.
        logging.getLogger(_name).setLevel(logging.WARNING)


class Transport(HTTPTransport[dict[str, Any]]):  # type: ignore[misc]
    """torchft's way of handing state over, by the pod's address: its host name means nothing to other pods."""

    def __init__(self, address: str) -> None:
        self._host = address
        super().__init__(timeout=COLLECTIVE_TIMEOUT, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None  # no access log on standard error

    def address(self) -> str:
        """Where peers fetch the state."""
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"


def new_store(address: str) -> TCPStore:
    """The store of a worker's first process, by which its groups are laid."""
    store = TCPStore(_host(address), 0, is_master=True, wait_for_workers=False)
    store.set(RENDEZVOUS_KEY, uuid.uuid4().hex)
    return store


def new_manager(
    *,
    name: str,
    coordinator: str,
    address: str,
    store_port: int,
    crew: Crew,
    group: ProcessGroup,
    transport: Transport,
    give: Callable[[], dict[str, Any]],
    take: Callable[[dict[str, Any]], None],
) -> Manager | None:
    """A Manager that has reached the lighthouse; None where it could not.

    Args:
        name: the worker's, by which the lighthouse sorts ranks.
        coordinator: host of the lighthouse.
        address: IP address of this pod.
        store_port: of the store of the worker's first process.
        crew: the processes of the worker.
        group: what is laid anew for each quorum.
        transport: hands the state over.
        give: the state for a peer that is behind.
        take: takes over a peer's state.
    """
    try:
        return Manager(
            pg=group,
            state_dict=give,
            load_state_dict=take,
            min_replica_size=1,
            use_async_quorum=False,
            timeout=COLLECTIVE_TIMEOUT,
            quorum_timeout=_QUORUM_TIMEOUT if crew.size == 1 else _CREW_QUORUM_TIMEOUT,
            quorum_retries=_QUORUM_RETRIES,
            connect_timeout=_CONNECT_TIMEOUT,
            rank=crew.rank,
            world_size=crew.size,
            store_addr=_host(address),
            store_port=store_port,
            lighthouse_addr=f"http://{coordinator}:{names.LIGHTHOUSE_PORT}",
            replica_id=name,
            hostname=address,
            checkpoint_transport=transport,
        )
    except Exception as error:  # noqa: BLE001 - whatever torchft and its RPC raise, there is no Manager
        _log.warning("no Manager: %s", error)
        return None


def ask_for_quorum(manager: Manager) -> bool | None:
    """Whether there is a quorum; None where none came in time. Where false the Manager is of no more use."""
    try:
        manager.start_quorum()
    except TimeoutError:
        return None
    except Exception as error:  # noqa: BLE001 - as above
        _log.warning("the quorum failed, connecting to the lighthouse again: %s", error)
        return False
    return True


def ask_again(manager: Manager) -> bool | None:
    """As `ask_for_quorum`, after one that did not come in time."""
    manager._quorum_future = None  # noqa: SLF001 - else it raises the same again
    return ask_for_quorum(manager)


def _host(address: str) -> str:
    # PyTorch looks up the name of each address it connects to; a resolver that is slow to say that a loopback address
    # has none holds every worker up. 127.0.0.1 is in /etc/hosts, and the store listens on all of them.
    return "127.0.0.1" if address.startswith("127.") else address
