# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a run of the simulation, and where it went wrong already."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from kfp_volcano.volcano.cluster.kubernetes.request import Request

__all__ = ["Faults", "Site", "role_of", "site_of"]

Site = str
"""Where a process was: its step and what it asked, e.g. `train get Job`."""

_STATUSES = (429, 500, 503, 504)
_READING = {"get", "list"}
_LONG = 0.12
"""How often a fault goes on for so long that the adapter gives up."""


def role_of(process: str) -> str:
    """`train` for the process `train-2#1`."""
    return re.split("[-#]", process)[0]


def site_of(process: str, request: Request) -> Site:
    """The call site of a request."""
    what = f"{request.verb} {request.kind.name}" + (f"/{request.subresource}" if request.subresource else "")
    return f"{role_of(process)} {what}"


@dataclass
class Faults:
    """Decides, call by call. The more often a site has been met without a fault, the likelier it gets one."""

    random: Random
    rate: float
    hit: Counter[tuple[Site, str]] = field(default_factory=Counter)
    """How often a site had a fault of a kind."""
    met: Counter[Site] = field(default_factory=Counter)
    running: dict[Site, tuple[str, int]] = field(default_factory=dict)
    """A fault that goes on, and for how many more calls."""
    kills: int = 0
    """How many kills are left."""
    on: bool = True

    def for_request(self, site: Site, request: Request) -> str | None:
        """What happens to it: None nothing; a status; `refused`, `reset`, `stalled`, with ` after` after its effect."""
        self.met[site] += 1
        if not self.on:
            return None
        if site in self.running:
            kind, left = self.running.pop(site)
            if left:
                self.running[site] = (kind, left - 1)
            return self._count(site, kind)
        if self.kills and self.random.random() < self.rate / 2:
            self.kills -= 1
            return self._count(site, self.random.choice(["kill", "kill after"]))
        if self.random.random() >= self.rate:
            return None
        kinds = [*map(str, _STATUSES), "refused", "reset", "stalled"]
        if request.verb not in _READING:
            kinds += ["reset after", "stalled after", "409"]
        kind = self.random.choice(kinds)
        left = self.random.randint(4, 15) if self.random.random() < _LONG else self.random.randint(0, 2)
        if left and kind != "409":
            self.running[site] = (kind, left)
        return self._count(site, kind)

    def for_stream(self, site: Site) -> str | None:
        """What happens to a stream that was opened well: `cut` or `silent` after some pieces, `410` of a watch."""
        if not self.on or self.random.random() >= 2 * self.rate:
            return None
        return self._count(site, self.random.choice(["cut", "silent", *(["410"] if " watch " in site else [])]))

    def for_line(self, site: Site) -> str | None:
        """Whether a process is killed by a line that it prints."""
        self.met[site] += 1
        rate = self.rate / 8 if site.startswith("train") else self.rate  # the others print little
        if self.on and self.kills and self.random.random() < rate:
            self.kills -= 1
            return self._count(site, self.random.choice(["kill", "kill after"]))
        return None

    def _count(self, site: Site, kind: str) -> str:
        self.hit[site, kind] += 1
        return kind
