# SPDX-License-Identifier: Apache-2.0
"""Where the agents of the pods learn of generations (strategy `restart`)."""

from __future__ import annotations

import threading
import time

from kfp_volcano.elastic.coordination.server import Server
from kfp_volcano.elastic.generations import HERE, Generations, Sign
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import dump, parse

__all__ = ["GenerationService"]

_HOLD_S = 2.0
"""How long a request waits for news. Every request is a sign of life, so this is well below what makes one lost."""


class GenerationService:
    """Runs from its creation until `stop`.

    An agent posts a `Sign` and is answered with the present generation, as soon as that is another than the one it
    runs, or after a moment.

    Args:
        host: address to listen on; `::` for all.
        generations: what is known of the members; belongs to this service from here on.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """

    def __init__(self, host: str, generations: Generations) -> None:
        self._generations = generations
        self._changed = threading.Condition()
        self._server = Server(host, names.GENERATIONS_PORT, "/generations", self._answer)

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()

    def _answer(self, text: str) -> str:
        sign = parse(Sign, text)
        known = sign.running.number if sign.running else 0
        ends = time.monotonic() + (_HOLD_S if sign.event == HERE else 0.0)
        with self._changed:
            self._generations.heard(sign, time.monotonic())
            self._changed.notify_all()
            while True:
                now = time.monotonic()
                generation = self._generations.at(now)
                if generation.number != known or now >= ends:
                    return dump(generation)
                due = self._generations.due()
                self._changed.wait(min(ends, ends if due is None else due) - now)
