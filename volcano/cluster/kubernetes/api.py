# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server that are tried again where that can help.

What is tried again: a request that got no answer or half of one, and the statuses 429, 500, 502, 503 and 504, with
pauses that grow and are spread, or as long as the server's `Retry-After` asks for, until the time for one request is
used up. Each is logged, as a warning where somebody waits for it: not for short pauses, and not for streams, whose
readers say themselves that they have been interrupted.

A request that got no answer may have been carried out. Reading again does no harm; for the others `Reply.doubtful`
says that an earlier try is in doubt, and the caller looks.
"""

from __future__ import annotations

import logging
import random
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3

from kfp_volcano.errors import UnavailableError
from kfp_volcano.volcano.cluster.kubernetes.connection import Answer, Connection, Silence
from kfp_volcano.volcano.cluster.kubernetes.refusals import message_of, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.kubernetes.request import Request

__all__ = ["Api", "Patience", "Reply"]

_log = logging.getLogger(__name__)

_TOO_MANY = 429
_LONG_S = 1.0
_TRY_AGAIN = frozenset({_TOO_MANY, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on trying, and the pauses in between, in seconds."""

    total_s: float = 30.0
    first_s: float = 0.25
    longest_s: float = 8.0
    answer_s: float = 60.0
    """How long to wait for the next bytes of an answer; the API server itself gives up a request after a minute."""
    late_s: float = 5.0
    """How much later than it was asked to the server may end a stream before that counts as silent."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    """From [0, 1): so that those who were interrupted together do not come back together."""

    def pause_s(self, tries: int, asked_s: float | None = None) -> float:
        """How long to wait after so many tries that failed, and at least as long as the server asked."""
        grown = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 30))
        spread = grown * (1 + self.jitter()) / 2
        return spread if asked_s is None else asked_s + spread


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that stands. `doubtful`: an earlier try of the same request may have been carried out."""

    answer: Answer
    doubtful: bool


class Api:
    """Asks until there is an answer that stands."""

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self._connection = connection
        self.patience = patience

    def ask(self, request: Request) -> Reply:
        """The answer, whatever it says. Raises UnavailableError when there was none in time."""

        def once(stack: ExitStack) -> Answer:
            del stack  # the answer is whole when this returns
            return self._connection.send(request, read_s=self.patience.answer_s)

        with ExitStack() as unused:
            return self._insist(request, once, unused, self.patience.total_s, waited_for=True)

    def read(self, request: Request) -> dict[str, Any]:
        """The object or list that a request for reading is answered with. Raises ClusterError."""
        answer = self.ask(request).answer
        return checked(request, answer)

    @contextmanager
    def stream(self, request: Request, *, silence_s: float, patience_s: float) -> Iterator[Iterator[bytes]]:
        """The body of an answer as it comes.

        Raises ClusterError where there is none, or the server refuses; on the way, Silence, also after `silence_s`
        without a byte.
        """
        chunks: Iterator[bytes] = iter(())

        def once(stack: ExitStack) -> Answer:
            nonlocal chunks
            answer, chunks = stack.enter_context(self._connection.open(request, read_s=silence_s))
            ok = refusal(request, answer) is None
            return answer if ok else Answer(answer.status, answer.headers, b"".join(chunks))

        with ExitStack() as stack:
            error = refusal(request, self._insist(request, once, stack, patience_s, waited_for=False).answer)
            if error is not None:
                raise error
            yield chunks

    def _insist(
        self,
        request: Request,
        once: Callable[[ExitStack], Answer],
        stack: ExitStack,
        patience_s: float,
        *,
        waited_for: bool,
    ) -> Reply:
        patience = self.patience
        ends_at = patience.clock() + patience_s
        tries, doubtful = 0, False
        while True:
            tries += 1
            asked_s: float | None = None
            try:
                answer = once(stack)
            except Silence as silence:
                reason, doubtful = str(silence), doubtful or silence.sent
            else:
                if answer.status not in _TRY_AGAIN:
                    return Reply(answer, doubtful)
                reason = f"{answer.status} {message_of(answer)}"
                doubtful = doubtful or answer.status != _TOO_MANY
                asked_s = _retry_after_s(answer)
            stack.close()
            pause_s = patience.pause_s(tries, asked_s)
            if patience.clock() + pause_s > ends_at:
                wait = f"; it asks to wait {asked_s:g} s" if asked_s else ""
                raise UnavailableError(f"{request}: {reason} (tried {tries} times{wait})")
            level = logging.WARNING if waited_for and pause_s >= _LONG_S else logging.DEBUG
            _log.log(level, "%s: %s; trying again in %.1f s", request, reason, pause_s)
            patience.sleep(pause_s)


def checked(request: Request, answer: Answer) -> dict[str, Any]:
    """The object in an answer. Raises the ClusterError that it means instead."""
    error = refusal(request, answer)
    if error is not None:
        raise error
    found = answer.json
    if not found:
        raise UnavailableError(f"{request}: the answer is no JSON object: is there a proxy in between?")
    return found


def _retry_after_s(answer: Answer) -> float | None:
    """The wait that the server asks for, seconds."""
    text = answer.headers.get("Retry-After")
    try:
        return None if text is None else float(urllib3.Retry().parse_retry_after(text))
    except urllib3.exceptions.InvalidHeader:
        return None
