# SPDX-License-Identifier: Apache-2.0
"""What is known of a queue without looking at its Jobs one by one: enough to see that nothing will be resized. Pure.

Most changes of a busy cluster lead to nothing: no gang waits that surplus would serve, and less is idle than it takes
to grow. To see that from a few sums costs the same however many Jobs there are. A policy that cannot tell is asked for
its decisions as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.memory import Mode

__all__ = ["Outlook", "Rest", "Resting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A queue at one moment, in sums; nothing of it was promised to workers without a node, or to other queues."""

    at: float
    limit_gpus: int
    free_gpus: int
    """GPUs that are free on nodes, within the limit."""
    waiting_gpus: int
    """GPUs that gangs of the queue wait for, none of which surplus could serve."""
    growing: bool
    """Whether any Job has less than its maximum."""
    mode: Mode | None
    """As it is remembered."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is resized."""

    mode: Mode | None = None
    """What the policy is, to be remembered."""
    until: float | None = None
    """When that changes if nothing happens."""


@runtime_checkable
class Resting(Protocol):
    """A policy that can tell from an outlook that it would resize nothing."""

    @property
    def steadfast(self) -> bool:
        """Whether what it decides changes by nothing but events, and at the times that it tells."""
        ...

    def rest(self, outlook: Outlook) -> Rest | None:
        """Not None only where it would resize no Job, whatever the Jobs are, before something happens or `until`."""
        ...
