# SPDX-License-Identifier: Apache-2.0
"""What the coordinator pod offers the workers: torchft's lighthouse, and an address for progress.

It keeps no state that training depends on: killed and started again, the workers find its lighthouse and go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.coordination.progress import ProgressReceiver
from kfp_volcano.elastic.runtime.lighthouse import lighthouse
from kfp_volcano.errors import MissingExtraError
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.records import Progress

__all__ = ["Coordinator"]


class Coordinator:
    """Runs from its creation until `stop`.

    Args:
        host: address to listen on; `::` for all.
        on_progress: called with each report, from a thread of the server, one at a time.
        lighthouse_port: where workers look for the lighthouse.
        progress_port: where they send progress to.

    Raises:
        OSError: a port is taken, or the address is not this machine's.
        MissingExtraError: torchft is not installed.
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
            self._lighthouse = lighthouse(host, lighthouse_port)
        except (OSError, MissingExtraError):
            self._progress.stop()
            raise

    def stop(self) -> None:
        """Closes both ports. Workers that are still connected to the lighthouse let go when this process ends."""
        self._progress.stop()
        self._lighthouse.shutdown()
