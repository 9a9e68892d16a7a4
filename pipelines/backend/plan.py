# SPDX-License-Identifier: Apache-2.0
"""A schedule as KFP is told it: everything that a recurring run holds, and the mark by which it is known again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kfp_server_api

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.cron import Cron
from kfp_volcano.schemas.quantities import duration_text
from kfp_volcano.schemas.schedule import Every, When
from kfp_volcano.schemas.time_zones import moved, zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

__all__ = ["Kept", "Plan"]

_MARK = "kfp-volcano schedule "
_MARKED = {"when", "zone", "version", "enabled", "digest"}
CONTROLLER = "ml-pipeline-scheduledworkflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recurring run to be."""

    name: str
    when: When
    time_zone: str
    pipeline_id: str
    version_id: str
    version: str
    """The version's name."""
    experiment: str
    service_account: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    catch_up: bool = False
    enabled: bool = True

    @property
    def said(self) -> str:
        """When, as a person reads it."""
        if isinstance(self.when, Every):
            return f"every {duration_text(self.when.seconds)}"
        return f"{self.when.six()} {self.time_zone}"

    @property
    def digest(self) -> str:
        """Of all but whether it is enabled: equal plans need no change."""
        said = [getattr(self, name) for name in sorted(set(self.__slots__) - {"enabled", "when", "version"})]
        return hashlib.sha256(json.dumps([*said, self.said], sort_keys=True).encode()).hexdigest()[:16]

    def body(self, *, backend_zone: str, today: date, enabled: bool) -> Any:
        """The recurring run. Raises SpecError where the backend's clock cannot say when."""
        modes = kfp_server_api.RecurringRunMode
        mark = {
            "when": self.when.seconds if isinstance(self.when, Every) else self.when.six(),
            "zone": self.time_zone,
            "version": self.version,
            "enabled": self.enabled,
            "digest": self.digest,
        }
        return kfp_server_api.V2beta1RecurringRun(
            display_name=self.name,
            description=f"{self.said}\n{_MARK}{json.dumps(mark)}",
            experiment_id=self.experiment,
            pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
                pipeline_id=self.pipeline_id, pipeline_version_id=self.version_id
            ),
            runtime_config=kfp_server_api.V2beta1RuntimeConfig(parameters=dict(self.parameters)),
            service_account=self.service_account or None,
            max_concurrency="1",
            no_catchup=not self.catch_up,
            mode=modes.ENABLE if enabled else modes.DISABLE,
            trigger=self._trigger(backend_zone, today),
        )

    def _trigger(self, backend_zone: str, today: date) -> Any:
        if isinstance(self.when, Every):
            periodic = kfp_server_api.V2beta1PeriodicSchedule(interval_second=str(self.when.seconds))
            return kfp_server_api.V2beta1Trigger(periodic_schedule=periodic)
        cron = moved(self.when, zone(self.time_zone), zone(backend_zone), today)
        if cron is None:
            raise SpecError([_unsayable(self, backend_zone)], source=f"schedule {self.name}")
        return kfp_server_api.V2beta1Trigger(cron_schedule=kfp_server_api.V2beta1CronSchedule(cron=cron.six()))


@dataclass(frozen=True, slots=True)
class Kept:
    """A recurring run that this package made, and what it says of itself."""

    recurring: Any
    mark: Mapping[str, Any]

    @classmethod
    def of(cls, recurring: Any) -> Kept | None:
        """None for a recurring run that another made."""
        _, found, text = str(recurring.description or "").partition(_MARK)
        try:
            mark = json.loads(text) if found else {}
        except ValueError:
            return None
        return cls(recurring, mark) if isinstance(mark, dict) and mark.keys() >= _MARKED else None

    @property
    def id(self) -> str:
        """The backend's."""
        return str(self.recurring.recurring_run_id)

    @property
    def digest(self) -> str:
        """Of the plan that it was made from."""
        return str(self.mark["digest"])

    @property
    def wanted(self) -> bool:
        """Whether it was to be enabled, when it was made."""
        return bool(self.mark["enabled"])

    @property
    def enabled(self) -> bool:
        """Whether it is."""
        return str(self.recurring.status) == "ENABLED"

    @property
    def plan(self) -> Plan:
        """The plan that it was made from, with whether it is enabled now."""
        recurring, when = self.recurring, self.mark["when"]
        reference, runtime = recurring.pipeline_version_reference, recurring.runtime_config
        return Plan(
            name=recurring.display_name,
            when=Every(when) if isinstance(when, int) else Cron.parse(when),
            time_zone=self.mark["zone"],
            pipeline_id=reference.pipeline_id,
            version_id=reference.pipeline_version_id,
            version=self.mark["version"],
            experiment=recurring.experiment_id,
            service_account=recurring.service_account or "",
            parameters=(runtime.parameters if runtime else None) or {},
            catch_up=not recurring.no_catchup,
            enabled=self.enabled,
        )


def _unsayable(plan: Plan, backend_zone: str) -> Problem:
    assert isinstance(plan.when, Cron)  # noqa: S101 - an interval has no zone
    here, there = plan.time_zone, backend_zone
    return Problem(
        "time zone",
        f"{plan.when.six()!r} in {here} is no one cron in {there}, in which this backend reads all of its schedules",
        f"have the administrator set CRON_SCHEDULE_TIMEZONE={here} on the Deployment {CONTROLLER} and say "
        f"--backend-time-zone {here}; or give the time in {there}, or an interval",
    )
