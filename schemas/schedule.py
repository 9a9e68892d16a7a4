# SPDX-License-Identifier: Apache-2.0
"""Schedules: work that is repeated by name, whoever repeats it.

`Schedules` is what a keeper of schedules does: KFP's recurring runs (`pipelines/recurring.py`), and CronJobs for
clusters without KFP. The command line knows only this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from kfp_volcano.schemas.cron import Cron

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

__all__ = ["Change", "Changes", "Every", "Schedule", "Scheduled", "Schedules", "When"]


@dataclass(frozen=True, slots=True)
class Every:
    """Again and again, this long after the last time was due."""

    seconds: int


When = Cron | Every


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Work to be repeated: never two of it at the same time, whatever keeps it."""

    name: str
    """Unique among the keeper's schedules; a DNS-1123 label."""
    when: When
    time_zone: str = "UTC"
    """The IANA name of the zone in which a cron is meant."""
    work: str
    """What is run, as text: a compiled pipeline for KFP, a TrainingJob for a CronJob."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The pipeline's parameters; empty for a TrainingJob."""
    enabled: bool = True
    catch_up: bool = False
    """Whether what was missed, while paused or down, is made up for. A training once is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to change in a schedule; None: leave it as it is."""

    when: When | None = None
    time_zone: str | None = None
    work: str | None = None
    parameters: Mapping[str, Any] | None = None
    """These are set, the others stay."""
    catch_up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A schedule as its keeper has it."""

    name: str
    enabled: bool
    when: str
    """As a person reads it, with its time zone: `30 2 * * * Asia/Tokyo`, `every 6h`."""
    work: str
    """What it runs, in a word or two: a pipeline and its version, a TrainingJob."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    catch_up: bool = False
    created: datetime | None = None
    last: datetime | None = None
    """When its last work began."""
    state: str = ""
    """How that stands or ended, in the keeper's word."""
    note: str = ""
    """What a person should know: an update that was interrupted, for instance."""


class Change(Enum):
    """What an order came to; the value is what the command line says."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    PAUSED = "paused"
    RESUMED = "resumed"
    DELETED = "deleted"


class Schedules(Protocol):
    """A keeper of schedules. Each order may be repeated: the second time it finds nothing to do.

    Raises, each of them: `SpecError` for what is wrong with the order, `NotFoundError` where there is no schedule of
    that name (all but `put` and `delete`), `ConflictError` where there is one that this package did not make, and the
    other `ClusterError`s for what the keeper refuses or does not answer.
    """

    def put(self, schedule: Schedule) -> Change:
        """Have exactly this schedule: create it, or change the one of its name, or find that it is so already."""
        ...

    def change(self, name: str, changes: Changes) -> Change:
        """Change some of it; it stays enabled or paused as it is."""
        ...

    def pause(self, name: str) -> Change:
        """Start no more of it; what runs is left alone."""
        ...

    def resume(self, name: str) -> Change:
        """Start it again when it is due."""
        ...

    def delete(self, name: str) -> Change:
        """Have no such schedule; what runs is left alone."""
        ...

    def scheduled(self) -> Sequence[Scheduled]:
        """Those that this package made, by name."""
        ...
