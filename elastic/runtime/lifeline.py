# SPDX-License-Identifier: Apache-2.0
"""A worker's own line to the lighthouse: whether it is there, and whom it holds for a group.

torchft tells a worker who is in a quorum only when that asks for one. Between two quorums, and above all where it was
cut off, a worker has to know whether the group that it belongs to is still the Job's. The lighthouse's status page says
so: `/status` of torchft 0.2 (`templates/status.html` there) names the quorum that was formed last, its members, and how
long ago each worker's heart was heard.
"""

from __future__ import annotations

import http.client
import re
import socket
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

__all__ = ["Lifeline", "Standing"]

_ANSWER_S = 1.0
_QUORUM = re.compile(r"Previous quorum id:\s*(\d+)")
_MEMBER = re.compile(r"<b>\s*([^<\s]+)\s*</b>")
_HEARD = re.compile(r"^\s*(\S+): seen ([0-9.eE+-]+)s ago", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the lighthouse holds for true."""

    quorum: int
    """Number of the newest quorum; 0 where there was none."""
    silent_s: dict[str, float]
    """For each of its members, how long ago its heart was heard; infinity where the lighthouse has forgotten it."""

    @classmethod
    def of(cls, page: str) -> Standing:
        """What the status page says."""
        quorum = _QUORUM.search(page)
        heard = {name: float(age) for name, age in _HEARD.findall(page)}
        return cls(
            quorum=int(quorum[1]) if quorum else 0,
            silent_s={name: heard.get(name, float("inf")) for name in _MEMBER.findall(page)},
        )


class Lifeline:
    """An idle connection to the lighthouse's process, which breaks when that ends; and questions beside it.

    Raises OSError where the lighthouse cannot be reached.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        self._host, self._port = host, port
        self.born = self._clock(timeout_s)
        """When it was made, in whole Unix seconds by the lighthouse's clock: one clock for all workers of a Job."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.settimeout(0)

    def whole(self) -> bool:
        """Whether the process that was connected to still runs, as far as this side has been told."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def ask(self) -> Standing | None:
        """How things stand; None where it does not answer within a second: it is lost, or this side is cut off."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_S)
        try:
            connection.request("GET", "/status")
            return Standing.of(connection.getresponse().read().decode())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _clock(self, timeout_s: float) -> int:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request("GET", "/status")
            told = connection.getresponse().getheader("Date")
        except http.client.HTTPException as error:
            raise OSError(f"it does not speak HTTP: {error}") from error
        finally:
            connection.close()
        return int(parsedate_to_datetime(told).timestamp()) if told else 0

    def close(self) -> None:
        """Lets go."""
        self._socket.close()
