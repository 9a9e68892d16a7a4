# SPDX-License-Identifier: Apache-2.0
"""Policies to be compared, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.policy_file import read_policies
from kfp_volcano.elastic.simulator.simulate import POLICIES
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.policy import QueuePolicy

__all__ = ["Contestant", "contestants", "problems_of"]

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A policy that takes part, under the name that tables call it."""

    name: str
    policy: str | QueuePolicy
    """One that the simulator knows by name, or a Policy."""


def contestants(given: Sequence[str]) -> tuple[Contestant, ...]:
    """The policies that are named: `POLICIES` of the simulator, or files of one Policy each.

    Raises:
        SpecError: What is wrong with any of them; a name comes twice.
    """
    wrong: list[Problem] = []
    found = [each for text in given if (each := _contestant(text, wrong)) is not None]
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    wrong += [Problem("--policy", f"{name} is given twice", "another metadata.name in the file") for name in twice]
    if wrong:
        raise SpecError(wrong, source="--policy")
    return tuple(found)


def problems_of(error: SpecError, place: str) -> list[Problem]:
    """An error's problems, each with the place in what a user gave."""
    named = [place if each.path in place else f"{place}: {each.path}" for each in error.problems]
    return [Problem(path, each.message, each.remedy) for path, each in zip(named, error.problems, strict=True)]


def _contestant(given: str, wrong: list[Problem]) -> Contestant | None:
    """The policy that is named; where it is none, why is added to what is wrong."""
    try:
        return Contestant(given, given) if given in POLICIES else _from_file(given)
    except SpecError as error:
        wrong += problems_of(error, f"--policy {given}")
        return None


def _from_file(given: str) -> Contestant:
    path = Path(given)
    if not (path.suffix in _SUFFIXES or path.exists()):
        remedy = f"one of {', '.join(POLICIES)}, or a file of kind Policy"
        raise SpecError(
            [Problem(f"--policy {given}", "there is no such policy, and no such file", remedy)], source=given
        )
    each = read_policies(path).each
    if len(each) != 1:
        what = f"holds {len(each)} Policies, of which one is to decide for all queues"
        raise SpecError([Problem(given, what, "a file of its own for each")], source=given)
    return Contestant(each[0].name, each[0])
