# SPDX-License-Identifier: Apache-2.0
"""Policies: what decides how large the Jobs of which queues are, as typed values.

`schemas.policy_validation` builds them from documents and reports every problem at once; nothing here checks. The
blocks of settings are kept as they were written: their types stand beside the policies that they are for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BUILT_IN",
    "DEFAULT",
    "GUARDS",
    "OWN_SETTINGS",
    "POLICY_BLOCKS",
    "PRIORITIES",
    "QUEUE_BLOCKS",
    "REQUESTS",
    "Arm",
    "Blocks",
    "Policies",
    "QueuePolicy",
    "fits",
    "weight",
]

Blocks = dict[str, dict[str, Any]]
"""Settings by the name of their block, as JSON."""

BUILT_IN = ("threshold", "adaptive", "hpa", "goodput")
"""Policies that there are without any other package; each has a block of its name."""
OWN_SETTINGS = "settings"
"""The block of a policy that another package brings."""
POLICY_BLOCKS = (*BUILT_IN, OWN_SETTINGS)
"""Blocks that an arm may have too."""
GUARDS = "guards"
"""The block of the guards around whatever decides."""
PRIORITIES = "priorities"
"""The block of what changes Jobs' classes, beside whatever decides on sizes."""
REQUESTS = "requests"
"""The block of what advises on requests."""
QUEUE_BLOCKS = (GUARDS, PRIORITIES, REQUESTS)
"""Blocks that are of the queue as a whole, and of no arm."""

_DEFAULT = BUILT_IN[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of an experiment."""

    name: str
    share: float = 1.0
    """Its part of the Jobs, relative to the other arms' shares."""
    policy: str = _DEFAULT
    blocks: Blocks = field(default_factory=dict)
    """Its settings; where it says nothing, those of the Policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """What decides for some queues. The form on the wire is in `schemas/json/policy.v1.schema.json`."""

    name: str
    queues: tuple[str, ...]
    """Names, or patterns in which `*` stands for any characters."""
    policy: str = _DEFAULT
    blocks: Blocks = field(default_factory=dict)
    arms: tuple[Arm, ...] = ()
    """Of an experiment, two at least; then `policy` says nothing."""
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What it was read from, for logs that are to be decided again."""


DEFAULT = QueuePolicy(
    name="default",
    queues=("*",),
    document={
        "apiVersion": "kfp-volcano/v1",
        "kind": "Policy",
        "metadata": {"name": "default"},
        "spec": {"queues": ["*"]},
    },
)
"""What decides where nothing is said."""


@dataclass(frozen=True, slots=True)
class Policies:
    """All Policies of an autoscaler; no two fit a queue equally well."""

    each: tuple[QueuePolicy, ...] = ()

    def of(self, queue: str) -> QueuePolicy:
        """The Policy of a queue: of those that fit it, the one that says most of its name."""
        fitting = (
            (weight(pattern), policy) for policy in self.each for pattern in policy.queues if fits(pattern, queue)
        )
        return max(fitting, key=lambda found: found[0], default=(0, DEFAULT))[1]


def fits(pattern: str, queue: str) -> bool:
    """Whether a pattern, in which only `*` is special, fits a queue's name."""
    return fnmatchcase(queue, pattern)


def weight(pattern: str) -> float:
    """How much of a name a pattern says: all of it, or so many characters."""
    return len(pattern) - pattern.count("*") if "*" in pattern else float("inf")
