# SPDX-License-Identifier: Apache-2.0
"""Schedules kept by KFP: recurring runs, which have no unique names there and cannot be changed, only replaced.

A schedule is replaced so that at no moment two of it are enabled, and so that whatever stops it half-way loses neither:

1. the new recurring run is made, disabled;
2. the old one is disabled;
3. the new one is enabled, if it is to be;
4. the old one is removed, its runs left alone.

Where 3 fails the old one is enabled again. Whoever is killed in between leaves two of one name; the next order for that
name finishes what the newer one of them says.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError, SpecError
from kfp_volcano.pipelines.backend import versions
from kfp_volcano.pipelines.backend.connection import matching
from kfp_volcano.pipelines.backend.plan import Kept, Plan
from kfp_volcano.pipelines.backend.runs import Ending, experiment_of
from kfp_volcano.pipelines.ir import CompiledPipeline
from kfp_volcano.schemas.schedule import Change, Changes, Every, Schedule, Scheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.pipelines.backend.connection import Connection
    from kfp_volcano.schemas.schedule import When

__all__ = ["RecurringRuns"]

_NEWEST_FIRST = "created_at desc"


class RecurringRuns:
    """A `Schedules` of a KFP backend. Its methods say nothing that the protocol does not."""

    def __init__(
        self,
        connection: Connection,
        *,
        experiment: str = "Default",
        service_account: str = "",
        backend_zone: str = "UTC",
        today: Callable[[], date] = lambda: datetime.now(timezone.utc).date(),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`backend_zone`: what the administrator set as CRON_SCHEDULE_TIMEZONE. `tell` hears what is worth knowing."""
        self._connection = connection
        self._experiment = experiment
        self._service_account = service_account
        self._backend_zone = backend_zone
        self._today = today
        self._tell = tell

    def put(self, schedule: Schedule) -> Change:  # noqa: D102 - see the protocol
        pipeline = _pipeline(schedule.work)
        parameters = pipeline.arguments(schedule.parameters)
        _check(schedule.name, schedule.when)
        draft = self._draft(schedule, parameters)
        self._body(draft, enabled=False)  # what is wrong with it is said before anything is made
        version = versions.upload(self._connection, pipeline)
        plan = replace(
            draft,
            pipeline_id=version.pipeline_id,
            version_id=version.version_id,
            version=version.name,
            experiment=experiment_of(self._connection, self._experiment),
        )
        kept = self._settled(schedule.name)
        if kept is None:
            self._create(plan, enabled=plan.enabled)
            return Change.CREATED
        if kept.digest != plan.digest:
            self._replace(kept, plan)
            return Change.UPDATED
        if kept.enabled == plan.enabled:
            return Change.UNCHANGED
        return self._turn_on(kept) if plan.enabled else self._turn_off(kept)

    def change(self, name: str, changes: Changes) -> Change:  # noqa: D102 - see the protocol
        kept = self._existing(name)
        plan = kept.plan
        when = changes.when or plan.when
        _check(name, when)
        plan = replace(
            plan,
            when=when,
            time_zone=changes.time_zone or plan.time_zone,
            parameters={**plan.parameters, **(changes.parameters or {})},
            catch_up=plan.catch_up if changes.catch_up is None else changes.catch_up,
            service_account=self._service_account or plan.service_account,
        )
        pipeline = _pipeline(changes.work or self._work(plan))
        plan = replace(plan, parameters=pipeline.arguments(plan.parameters))
        self._body(plan, enabled=False)
        if changes.work is not None:
            version = versions.upload(self._connection, pipeline)
            plan = replace(plan, pipeline_id=version.pipeline_id, version_id=version.version_id, version=version.name)
        if plan.digest == kept.digest:
            return Change.UNCHANGED
        self._replace(kept, plan)
        return Change.UPDATED

    def pause(self, name: str) -> Change:  # noqa: D102 - see the protocol
        kept = self._existing(name)
        return self._turn_off(kept) if kept.enabled else Change.UNCHANGED

    def resume(self, name: str) -> Change:  # noqa: D102 - see the protocol
        kept = self._existing(name)
        return Change.UNCHANGED if kept.enabled else self._turn_on(kept)

    def delete(self, name: str) -> Change:  # noqa: D102 - see the protocol
        found = self._of_name(name)
        for kept in reversed(found):  # the newest last: it is what an order that was cut short goes by
            self._remove(kept)
        return Change.DELETED if found else Change.UNCHANGED

    def scheduled(self) -> Sequence[Scheduled]:  # noqa: D102 - see the protocol
        by_name: dict[str, list[Kept]] = {}
        for kept in self._kept():
            by_name.setdefault(kept.recurring.display_name, []).append(kept)
        return [self._scheduled(found) for _, found in sorted(by_name.items())]

    def _scheduled(self, found: list[Kept]) -> Scheduled:
        kept = found[0]
        plan = kept.plan
        last = self._last_run(kept)
        return Scheduled(
            name=plan.name,
            enabled=any(each.enabled for each in found),
            when=plan.said,
            work=plan.version,
            parameters=plan.parameters,
            catch_up=plan.catch_up,
            created=kept.recurring.created_at,
            last=last.created_at if last else None,
            state=str(last.state) if last else "",
            note="" if len(found) == 1 else "an update was interrupted: give the order again",
        )

    def _draft(self, schedule: Schedule, parameters: Mapping[str, Any]) -> Plan:
        return Plan(
            name=schedule.name,
            when=schedule.when,
            time_zone=schedule.time_zone,
            pipeline_id="",
            version_id="",
            version="",
            experiment="",
            service_account=self._service_account,
            parameters=parameters,
            catch_up=schedule.catch_up,
            enabled=schedule.enabled,
        )

    def _body(self, plan: Plan, *, enabled: bool) -> Any:
        return plan.body(backend_zone=self._backend_zone, today=self._today(), enabled=enabled)

    def _work(self, plan: Plan) -> str:
        """The IR of a plan's pipeline, from the backend."""
        version = self._connection.read(
            lambda: self._connection.pipelines.pipeline_service_get_pipeline_version(plan.pipeline_id, plan.version_id)
        )
        spec = version.pipeline_spec or {}
        return json.dumps(spec.get("pipeline_spec", spec))

    # --- what is there ---

    def _kept(self, name: str | None = None) -> list[Kept]:
        """This package's recurring runs, newest first."""
        return [kept for each in self._listing(name) if (kept := Kept.of(each)) is not None]

    def _listing(self, name: str | None) -> list[Any]:
        query = {**self._connection.scope, **({"filter": matching("display_name", name)} if name else {})}
        listing = self._connection.pages(
            self._connection.recurring_runs.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            sort_by=_NEWEST_FIRST,
            **query,
        )
        return list(listing)

    def _of_name(self, name: str) -> list[Kept]:
        """Those of a name, newest first. Raises ConflictError where it is another's."""
        listing = self._listing(name)
        found = [kept for each in listing if (kept := Kept.of(each)) is not None]
        if len(found) < len(listing):
            raise ConflictError(
                f"there is a recurring run {name} that kfp-volcano did not make: remove it, or take another name"
            )
        return found

    def _existing(self, name: str) -> Kept:
        kept = self._settled(name)
        if kept is None:
            raise NotFoundError(f"there is no schedule {name}; kfp-volcano schedule list shows those that are")
        return kept

    def _settled(self, name: str) -> Kept | None:
        """The one of a name; an update that was cut short is finished first."""
        found = self._of_name(name)
        if len(found) > 1:
            newest, *older = found
            self._tell(f"{name}: finishing an update that was interrupted")
            for old in older:
                self._switch(old, enable=False)
            if newest.wanted and not newest.enabled:
                self._switch(newest, enable=True)
            for old in older:
                self._remove(old)
            found = self._of_name(name)
        return found[0] if found else None

    def _last_run(self, kept: Kept) -> Any | None:
        query: dict[str, Any] = {"filter": matching("recurring_run_id", kept.id), "sort_by": _NEWEST_FIRST}
        query |= {"experiment_id": kept.recurring.experiment_id} if kept.recurring.experiment_id else {}
        answer = self._connection.read(lambda: self._connection.runs.run_service_list_runs(page_size=1, **query))
        return next(iter(answer.runs or ()), None)

    # --- what is done to it ---

    def _create(self, plan: Plan, *, enabled: bool) -> Kept:
        before = {kept.id for kept in self._of_name(plan.name)}

        def find() -> Any | None:
            new = [kept.recurring for kept in self._kept(plan.name) if kept.id not in before]
            return next((each for each in new if (kept := Kept.of(each)) and kept.digest == plan.digest), None)

        body = self._body(plan, enabled=enabled)
        made = self._connection.create(
            lambda: self._connection.recurring_runs.recurring_run_service_create_recurring_run(recurring_run=body), find
        )
        kept = Kept.of(made)
        if kept is None:
            raise ClusterError(f"the KFP backend at {self._connection.host} has answered without a recurring run")
        return kept

    def _replace(self, old: Kept, plan: Plan) -> None:
        new = self._create(plan, enabled=False)
        try:
            if old.enabled:
                self._switch(old, enable=False)
            if plan.enabled:
                self._switch(new, enable=True)
        except ClusterError:
            with suppress(ClusterError):  # what went wrong is told; what can be restored is
                if old.enabled:
                    self._switch(old, enable=True)
                self._remove(new)
            raise
        running = self._last_run(old)
        if running is not None and str(running.state) not in Ending.__members__:
            self._tell(f"{plan.name}: the run {running.run_id} that was started before goes on")
        self._remove(old)

    def _turn_on(self, kept: Kept) -> Change:
        """Enable it; without catch-up by replacing it, for KFP makes up for the last time missed at least."""
        plan = replace(kept.plan, enabled=True)
        if plan.catch_up:
            self._switch(kept, enable=True)
        else:
            self._replace(kept, plan)
        return Change.RESUMED

    def _turn_off(self, kept: Kept) -> Change:
        self._switch(kept, enable=False)
        return Change.PAUSED

    def _switch(self, kept: Kept, *, enable: bool) -> None:
        api = self._connection.recurring_runs
        order = (
            api.recurring_run_service_enable_recurring_run
            if enable
            else api.recurring_run_service_disable_recurring_run
        )
        self._connection.change(lambda: order(kept.id))

    def _remove(self, kept: Kept) -> None:
        api = self._connection.recurring_runs
        # Kubernetes would remove the runs with what started them.
        self._connection.remove(
            lambda: api.recurring_run_service_delete_recurring_run(kept.id, propagation_policy="ORPHAN")
        )


def _pipeline(work: str) -> CompiledPipeline:
    return CompiledPipeline.parse(work, source="the schedule's pipeline")


def _check(name: str, when: When) -> None:
    if not name or name != name.strip():
        raise SpecError("a schedule has a name", source="name")
    if isinstance(when, Every) and when.seconds < 1:
        raise SpecError(f"{when.seconds} s is no interval", source=f"schedule {name}")
