# SPDX-License-Identifier: Apache-2.0
"""An agent's connection to the coordinator: it says that the agent lives, and hears of generations."""

from __future__ import annotations

import http.client
import logging
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from kfp_volcano.elastic.generations import HERE, Generation, Sign
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import dump, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.generations import Member

__all__ = ["Link"]

_ANSWER_S = 10.0
_RETRY_S = 1.0
_LAST_WORD_S = 3.0
_PATIENCE_S = 15.0
"""Pods of a gang start at the same time, and a name is known to the cluster's DNS a little later."""

_log = logging.getLogger(__name__)


class Link:
    """Asks the coordinator for generations from its creation until `close`; one that is away is asked again.

    Args:
        coordinator: its host.
        member: who asks.
        on_generation: called with each generation that is new, from the link's thread.
    """

    def __init__(self, coordinator: str, member: Member, on_generation: Callable[[Generation], None]) -> None:
        host = f"[{coordinator}]" if ":" in coordinator else coordinator
        self._url = f"http://{host}:{names.GENERATIONS_PORT}/generations"
        self._member = member
        self._on_generation = on_generation
        self._latest: Generation | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._thread.start()

    def close(self, event: str) -> None:
        """Say how this agent ends; a coordinator that is away will find out."""
        self._closed.set()
        try:
            self._tell(event, _LAST_WORD_S)
        except (OSError, http.client.HTTPException, ValueError) as error:
            _log.warning("the coordinator could not be told of the end: %s", error)

    def _run(self) -> None:
        away_since: float | None = None
        told = False
        while not self._closed.is_set():
            try:
                generation = self._tell(HERE, _ANSWER_S)
            except (OSError, http.client.HTTPException, ValueError) as error:
                away_since = time.monotonic() if away_since is None else away_since
                if not told and time.monotonic() >= away_since + _PATIENCE_S:
                    told = True
                    _log.warning("the coordinator does not answer, it is asked again and again: %s", error)
                self._closed.wait(_RETRY_S)
                continue
            if told:
                _log.info("the coordinator answers again")
            away_since, told = None, False
            known = self._latest.number if self._latest is not None else 0
            self._latest = generation
            if generation.number != known and not self._closed.is_set():
                self._on_generation(generation)

    def _tell(self, event: str, timeout_s: float) -> Generation:
        sign = Sign(member=self._member, event=event, running=self._latest)
        request = urllib.request.Request(  # noqa: S310 - the coordinator's address, from the manifest
            self._url, dump(sign).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - as above
            return parse(Generation, answer.read().decode())
