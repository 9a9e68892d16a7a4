"""What the coordinator pod offers the workers: torchft's lighthouse, and an address for progress.

It keeps no state that training depends on: killed and started again, the workers find its lighthouse and go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchft.coordination import LighthouseServer

from kfp_volcano.elastic.coordination.progress import ProgressReceiver
from kfp_volcano.elastic.runtime.replica_group import HEARTBEAT_TIMEOUT_S
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.records import Progress

__all__ = ["Coordinator"]

_JOIN_TIMEOUT_S = 60.0
"""How long a quorum waits for a worker whose heart beats but that does not come: one that hangs, or is very slow."""

_QUORUM_TICK_S = 0.02


class Coordinator:
    """Runs from its creation until `stop`.

    Args:
        host: address to listen on; `::` for all.
        on_progress: called with each report, from a thread of the server, one at a time.
        lighthouse_port: where workers look for the lighthouse.
        progress_port: where they send progress to.

    Raises:
        OSError: a port is taken, or the address is not this machine's.
    """

    def __init__(
        self,
        host: str,
        on_progress: Callable[[Progress], None],
        *,
        lighthouse_port: int = names.LIGHTHOUSE_PORT,
        progress_port: int = names.PROGRESS_PORT,
    ) -> None:
        self._progress = ProgressReceiver(host, on_progress, port=progress_port)
        try:
            self._lighthouse = LighthouseServer(
                bind=f"[{host}]:{lighthouse_port}" if ":" in host else f"{host}:{lighthouse_port}",
                min_replicas=1,
                join_timeout_ms=round(_JOIN_TIMEOUT_S * 1000),
                quorum_tick_ms=round(_QUORUM_TICK_S * 1000),
                heartbeat_timeout_ms=round(HEARTBEAT_TIMEOUT_S * 1000),
            )
        except RuntimeError as error:
            self._progress.stop()
            raise OSError(f"the lighthouse cannot listen on {host}:{lighthouse_port}: {error}") from error

    def stop(self) -> None:
        """Closes both ports. Workers that are still connected to the lighthouse let go when this process ends."""
        self._progress.stop()
        self._lighthouse.shutdown()
