# SPDX-License-Identifier: Apache-2.0
"""Schedules for clusters without KFP: a Volcano CronJob for each, which makes Jobs of a TrainingJob."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ConflictError, NotFoundError, Problem, SpecError
from kfp_volcano.schemas.cron import Cron
from kfp_volcano.schemas.names import MANAGED_LABEL, MANAGER, SPEC
from kfp_volcano.schemas.schedule import Change, Every, Schedule, Scheduled
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.launcher.coordinator_account import give_account
from kfp_volcano.volcano.manifests.cron_job import cron_job, example_job
from kfp_volcano.volcano.manifests.status import job_state
from kfp_volcano.volcano.model.objects import holds, is_owned_by, labels_of, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.schedule import Changes
    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["CronJobs"]

_OURS = {MANAGED_LABEL: MANAGER}
_EVERY = "@every "


class CronJobs:
    """See `Schedules`. The work of a schedule is a TrainingJob as text; it has no parameters.

    What was missed is made up for once, however often it was missed: more is not to be had from Volcano.

    Args:
        cluster: Where.
        namespace: Whose schedules.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def put(self, schedule: Schedule) -> Change:
        """See `Schedules.put`. Raises SpecError also where the cluster could not run the Jobs."""
        if schedule.parameters:
            given = ", ".join(schedule.parameters)
            raise SpecError([Problem("parameters", f"a TrainingJob has none: {given}", "write them into it")])
        job = training_job(parse(schedule.work), source=f"the TrainingJob of schedule {schedule.name}")
        if job.namespace != self._namespace:
            what = f"is {job.namespace}, the schedule's {self._namespace}"
            raise SpecError([Problem("metadata.namespace", what, "a CronJob makes Jobs in its own namespace")])
        wanted = cron_job(job, schedule)
        self._check(job, schedule.name)
        give_account(self._cluster, self._namespace, wanted["spec"]["jobTemplate"]["spec"]["tasks"])
        try:
            found = self._ours(schedule.name)
        except NotFoundError:
            self._cluster.create(wanted)
            return Change.CREATED
        parts = {"spec": wanted["spec"], "metadata": {"labels": wanted["metadata"]["labels"]}}
        if holds(found, parts) and ("startingDeadlineSeconds" in found["spec"]) is not schedule.catch_up:
            return Change.UNCHANGED
        labels = {**labels_of(found), **wanted["metadata"]["labels"]}
        self._patch(found, {"/spec": wanted["spec"], "/metadata/labels": labels})
        return Change.UPDATED

    def change(self, name: str, changes: Changes) -> Change:
        """See `Schedules.change`."""
        schedule = _schedule(self._ours(name))
        values = {each.name: getattr(changes, each.name) for each in fields(changes)}
        return self.put(replace(schedule, **{key: value for key, value in values.items() if value is not None}))

    def pause(self, name: str) -> Change:
        """See `Schedules.pause`."""
        return self._suspend(name, suspended=True)

    def resume(self, name: str) -> Change:
        """See `Schedules.resume`."""
        return self._suspend(name, suspended=False)

    def delete(self, name: str) -> Change:
        """See `Schedules.delete`. Jobs that have ended go with it."""
        try:
            found = self._ours(name)
        except NotFoundError:
            return Change.UNCHANGED
        self._suspend(name, suspended=True)  # no new Job comes between here and the end
        for job in self._jobs(found):
            if not job_state(job).final:
                self._disown(job, found["metadata"]["uid"])
        with suppress(NotFoundError):
            self._cluster.delete("CronJob", name, self._namespace, uid=found["metadata"]["uid"])
        return Change.DELETED

    def scheduled(self) -> Sequence[Scheduled]:
        """See `Schedules.scheduled`."""
        found, _ = self._cluster.list("CronJob", self._namespace, _OURS)
        return [self._scheduled(each) for each in sorted(found, key=lambda each: str(each["metadata"]["name"]))]

    def _check(self, job: TrainingJob, name: str) -> None:
        """Look whether the cluster could run the Jobs: nobody is there to be told when they are due."""
        refusals = self._cluster.preflight(example_job(job, name))
        if refusals:
            raise SpecError([Problem(*refusal) for refusal in refusals], source=f"TrainingJob {job.name}")

    def _ours(self, name: str) -> Manifest:
        try:
            found = self._cluster.get("CronJob", name, self._namespace)
        except NotFoundError:
            where = f"in namespace {self._namespace}; kfp-volcano schedule list shows those that are"
            raise NotFoundError(f"there is no schedule {name} {where}") from None
        if labels_of(found).get(MANAGED_LABEL) != MANAGER:
            raise ConflictError(f"CronJob {self._namespace}/{name} was not made by kfp-volcano: choose another name")
        return found

    def _suspend(self, name: str, *, suspended: bool) -> Change:
        found = self._ours(name)
        if bool(found["spec"].get("suspend")) is suspended:
            return Change.UNCHANGED
        self._patch(found, {"/spec/suspend": suspended})
        return Change.PAUSED if suspended else Change.RESUMED

    def _patch(self, found: Manifest, values: dict[str, Any]) -> None:
        """Set parts of a CronJob if its spec is still as it was found; its status changes all the time."""
        metadata = found["metadata"]
        tests = {"/metadata/uid": metadata["uid"], "/spec": found["spec"]}
        patch = [
            *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
            *({"op": "add", "path": path, "value": value} for path, value in values.items()),
        ]
        self._cluster.patch("CronJob", metadata["name"], metadata["namespace"], patch)

    def _jobs(self, schedule: Manifest) -> list[Manifest]:
        jobs, _ = self._cluster.list("Job", schedule["metadata"]["namespace"])
        owned = (job for job in jobs if is_owned_by(job, schedule["metadata"]["uid"]))
        return sorted(owned, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def _disown(self, job: Manifest, uid: str) -> None:
        """Let a Job stay when its schedule goes."""
        metadata = job["metadata"]
        index = next(number for number, owner in enumerate(metadata["ownerReferences"]) if owner["uid"] == uid)
        at = f"/metadata/ownerReferences/{index}"
        patch = [{"op": "test", "path": f"{at}/uid", "value": uid}, {"op": "remove", "path": at}]
        with suppress(NotFoundError):
            self._cluster.patch("Job", metadata["name"], metadata["namespace"], patch)

    def _scheduled(self, found: Manifest) -> Scheduled:
        schedule, status, jobs = _schedule(found), found.get("status") or {}, self._jobs(found)
        last = status.get("lastScheduleTime")
        text = str(found["spec"]["schedule"])
        return Scheduled(
            name=schedule.name,
            enabled=schedule.enabled,
            when=text.replace("@", "") if text.startswith(_EVERY) else f"{text} {schedule.time_zone}",
            work=f"TrainingJob {training_job(parse(schedule.work)).name}",
            catch_up=schedule.catch_up,
            created=_moment(found["metadata"]["creationTimestamp"]),
            last=_moment(last) if last else None,
            state=job_state(jobs[-1]).value if jobs else "",
            note=f"Job {jobs[-1]['metadata']['name']}" if jobs else "",
        )


def _schedule(found: Manifest) -> Schedule:
    """The schedule that a CronJob of ours was made from."""
    spec = found["spec"]
    times = str(spec["schedule"])
    every = times.startswith(_EVERY)
    return Schedule(
        name=found["metadata"]["name"],
        when=Every(int(times.removeprefix(_EVERY).removesuffix("s"))) if every else Cron.parse(times),
        time_zone=spec.get("timeZone") or "UTC",
        work=spec["jobTemplate"]["metadata"]["annotations"][SPEC],
        enabled=not spec.get("suspend"),
        catch_up="startingDeadlineSeconds" not in spec,
    )


def _moment(text: str) -> datetime:
    return datetime.fromtimestamp(parse_time(text), timezone.utc)
