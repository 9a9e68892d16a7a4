# SPDX-License-Identifier: Apache-2.0
"""Numbered generations: who trains together, for programs that must begin anew when their number changes.

A generation is a list of members in their order. A new one is made when members came, left, were lost or began anew,
once it has been quiet for a moment, so that many who come together make one. Where the members are too few for any
program to run, the generation is empty: all stop and wait.

Pure: time is passed in, in seconds of any steady clock. Nothing is kept anywhere else: the members tell a coordinator
that begins anew which generation they are in (`heard`), and it goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FINISHED", "HERE", "LEAVING", "Generation", "Generations", "Member", "Sign"]

HERE, LEAVING, FINISHED = "here", "leaving", "finished"

_MOST_SETTLES = 5
"""While members keep coming, a generation is made after so many settle times all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod's agent, from its start to its end."""

    pod: str
    incarnation: str
    """Another one each time the agent starts."""
    host: str
    """Its address."""
    role: str
    task: str
    index: int
    """Within the task."""
    port: int = 0
    """Where its program listens, for frameworks that want to be told."""
    procs: int = 1
    """Processes that the pod takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Who trains together."""

    number: int
    members: tuple[Member, ...] = ()
    """In order: role by role, then by task and index; empty where they are too few."""
    finished: tuple[str, ...] = ()
    """Pods whose program has ended well, in this generation or before; they are not waited for."""

    def position(self, pod: str, incarnation: str) -> int | None:
        """The place of a member among those of its role, or None if it is none."""
        role = next((m.role for m in self.members if (m.pod, m.incarnation) == (pod, incarnation)), None)
        return None if role is None else [member.pod for member in self.of(role)].index(pod)

    def of(self, role: str) -> list[Member]:
        """The members of a role, in order."""
        return [member for member in self.members if member.role == role]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What a member tells the coordinator."""

    member: Member
    event: str = HERE
    """HERE; LEAVING: it is told to go, or its program failed; FINISHED: its program ended well."""
    running: Generation | None = None
    """The last generation that it heard of."""


@dataclass(slots=True)
class Generations:
    """What a coordinator knows of the members.

    Args:
        roles: fewest members of each role beside `scaled` in a generation.
        scaled: the role whose number may change.
        least: fewest members of that role.
        settle_s: how long it must be quiet before a generation is made.
        lost_s: after how long without a word a member counts as lost.
    """

    roles: Mapping[str, int]
    scaled: str
    least: int
    settle_s: float = 1.0
    lost_s: float = 10.0
    generation: Generation = Generation(number=0)
    _members: dict[str, Member] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)
    _finished: dict[str, str] = field(default_factory=dict)
    """Pod to role."""
    _first_change: float | None = None
    _last_change: float | None = None

    def heard(self, sign: Sign, now: float) -> None:
        """A member gave a sign of life, or of its end.

        A generation later than any known here is taken over, its members count as heard of: another coordinator made
        it.
        """
        if sign.running is not None and sign.running.number > self.generation.number:
            self._take_over(sign.running, now)
        if sign.event == HERE:
            self._is_here(sign.member, now)
        elif self._known(sign.member):
            self._forget(sign.member.pod)
            if sign.event == FINISHED:
                self._finished[sign.member.pod] = sign.member.role
                self.generation = replace(self.generation, finished=tuple(sorted(self._finished)))
            else:
                self._changed(now)

    def at(self, now: float) -> Generation:
        """The present generation; a new one if it is time for it."""
        for pod, heard in list(self._heard.items()):
            if now - heard >= self.lost_s:
                self._forget(pod)
                self._changed(now)
        due = self.due()
        if due is not None and now >= due:
            self._first_change = self._last_change = None
            members = self._ordered() if self._complete() else ()
            if members != self._still(self.generation.members):
                self.generation = Generation(
                    number=self.generation.number + 1, members=members, finished=tuple(sorted(self._finished))
                )
        return self.generation

    def due(self) -> float | None:
        """When to look again although nothing is heard, for a generation that is in the making."""
        if self._first_change is None or self._last_change is None:
            return None
        return min(self._last_change + self.settle_s, self._first_change + _MOST_SETTLES * self.settle_s)

    def _is_here(self, member: Member, now: float) -> None:
        if self._members.get(member.pod) != member:
            self._changed(now)
            self._finished.pop(member.pod, None)
        self._members[member.pod] = member
        self._heard[member.pod] = now

    def _take_over(self, running: Generation, now: float) -> None:
        self.generation = running
        for member in running.members:
            if member.pod in running.finished:
                self._finished.setdefault(member.pod, member.role)
            elif member.pod not in self._members:
                self._members[member.pod] = member
                self._heard[member.pod] = now
        self._changed(now)

    def _known(self, member: Member) -> bool:
        known = self._members.get(member.pod)
        return known is not None and known.incarnation == member.incarnation

    def _forget(self, pod: str) -> None:
        del self._members[pod], self._heard[pod]

    def _changed(self, now: float) -> None:
        self._first_change = now if self._first_change is None else self._first_change
        self._last_change = now

    def _still(self, members: tuple[Member, ...]) -> tuple[Member, ...]:
        """Members without those that have finished."""
        return tuple(member for member in members if member.pod not in self._finished)

    def _ordered(self) -> tuple[Member, ...]:
        order = {role: place for place, role in enumerate((*self.roles, self.scaled))}
        known = (member for member in self._members.values() if member.role in order)
        return tuple(sorted(known, key=lambda member: (order[member.role], member.task, member.index)))

    def _complete(self) -> bool:
        """Whether the members suffice, those that have finished included."""
        present = [*(member.role for member in self._members.values()), *self._finished.values()]
        if not self._members or present.count(self.scaled) < self.least:
            return False
        return all(present.count(role) >= number for role, number in self.roles.items())
