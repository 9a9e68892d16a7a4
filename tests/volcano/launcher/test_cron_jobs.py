# SPDX-License-Identifier: Apache-2.0
"""Schedules kept as CronJobs: each order may be repeated, and nothing is lost that another has changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfp_volcano.errors import ConflictError, NotFoundError, SpecError
from kfp_volcano.schemas.cron import Cron
from kfp_volcano.schemas.schedule import Change, Changes, Every, Schedule
from kfp_volcano.schemas.wire import spec_text
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.launcher.cron_jobs import CronJobs
from kfp_volcano.volcano.model.objects import reference_to
from pipeline_runs import NS, SPEC, World

NIGHTLY = Schedule(name="nightly", when=Cron.parse("30 2 * * *"), time_zone="Asia/Tokyo", work=spec_text(SPEC))


class Checked:
    """The in-memory cluster, with findings of preflight."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.findings: list[tuple[str, str, str]] = []

    def preflight(self, _: Any) -> list[tuple[str, str, str]]:
        return self.findings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture(name="world")
def _world() -> World:
    return World()


@pytest.fixture(name="cluster")
def _cluster(world: World) -> Checked:
    return Checked(world.store)


@pytest.fixture(name="keeper")
def _keeper(cluster: Checked) -> CronJobs:
    return CronJobs(cluster, NS)  # type: ignore[arg-type]


def stored(cluster: Checked, name: str = "nightly") -> dict[str, Any]:
    return cluster.store.get("CronJob", name, NS)


def test_orders_may_be_repeated(keeper: CronJobs) -> None:
    """The second time nothing is to do, and that is said."""
    assert [keeper.put(NIGHTLY), keeper.put(NIGHTLY)] == [Change.CREATED, Change.UNCHANGED]
    assert [keeper.pause("nightly"), keeper.pause("nightly")] == [Change.PAUSED, Change.UNCHANGED]
    assert [keeper.resume("nightly"), keeper.resume("nightly")] == [Change.RESUMED, Change.UNCHANGED]
    assert [keeper.delete("nightly"), keeper.delete("nightly")] == [Change.DELETED, Change.UNCHANGED]


def test_what_is_there_reads_as_it_was_ordered(keeper: CronJobs) -> None:
    """Name, times and zone, the training, paused or not."""
    keeper.put(NIGHTLY)
    keeper.put(Schedule(name="often", when=Every(21600), work=NIGHTLY.work, enabled=False, catch_up=True))
    nightly, often = keeper.scheduled()
    assert (nightly.when, nightly.work, nightly.enabled) == ("30 2 * * * Asia/Tokyo", "TrainingJob digits", True)
    assert (often.when, often.enabled, often.catch_up) == ("every 21600s", False, True)


def test_a_change_leaves_the_rest(keeper: CronJobs, cluster: Checked) -> None:
    """Other times, the same training; paused it stays paused."""
    keeper.put(NIGHTLY)
    keeper.pause("nightly")
    before = stored(cluster)["spec"]["jobTemplate"]
    assert keeper.change("nightly", Changes(when=Every(3600), catch_up=True)) is Change.UPDATED
    after = stored(cluster)["spec"]
    assert (after["schedule"], after["suspend"], after["timeZone"]) == ("@every 3600s", True, "Asia/Tokyo")
    assert after["jobTemplate"] == before
    assert "startingDeadlineSeconds" not in after
    assert keeper.change("nightly", Changes(catch_up=False)) is Change.UPDATED
    with pytest.raises(NotFoundError):
        keeper.change("weekly", Changes(time_zone="UTC"))


def test_what_another_has_changed_is_put_right_again(keeper: CronJobs, cluster: Checked) -> None:
    """`put` means exactly this schedule, whatever became of it by hand."""
    keeper.put(NIGHTLY)
    patch = [{"op": "replace", "path": "/spec/concurrencyPolicy", "value": "Allow"}]
    cluster.store.patch("CronJob", "nightly", NS, patch)
    assert keeper.put(NIGHTLY) is Change.UPDATED
    assert stored(cluster)["spec"]["concurrencyPolicy"] == "Forbid"


def test_anothers_cronjob_is_left_alone(keeper: CronJobs, cluster: Checked) -> None:
    """One that this package did not make is neither changed nor listed."""
    keeper.put(NIGHTLY)
    cluster.store.patch("CronJob", "nightly", NS, [{"op": "remove", "path": "/metadata/labels"}])
    for order in (lambda: keeper.put(NIGHTLY), lambda: keeper.pause("nightly"), lambda: keeper.delete("nightly")):
        with pytest.raises(ConflictError, match="was not made by kfp-volcano"):
            order()
    assert keeper.scheduled() == []


def test_a_schedule_that_is_not_there_is_named(keeper: CronJobs) -> None:
    """With where it was looked for."""
    with pytest.raises(NotFoundError, match=f"no schedule weekly in namespace {NS}"):
        keeper.pause("weekly")


def test_what_runs_outlives_its_schedule(keeper: CronJobs, cluster: Checked, world: World) -> None:
    """A Job that trains goes on when the schedule is deleted; one that has ended goes with it."""
    keeper.put(NIGHTLY)
    owner = stored(cluster)
    world.job("run-0001", step="schedule", owner=owner)
    world.job("run-0002", step="schedule", owner=owner, phase="Completed")
    (found,) = keeper.scheduled()
    assert found.state
    keeper.delete("nightly")
    assert world.jobs() == {"digits-0001"}
    left = cluster.store.get("Job", "digits-0001", NS)
    assert reference_to(owner)["uid"] not in json.dumps(left["metadata"].get("ownerReferences", []))


def test_what_cannot_run_is_told_at_once(keeper: CronJobs, cluster: Checked) -> None:
    """Nobody looks when it is due: a queue that is not there is an error now."""
    cluster.findings = [("spec.queue", "there is no queue 'x'", "use one of: default")]
    with pytest.raises(SpecError, match="no queue"):
        keeper.put(NIGHTLY)
    assert keeper.scheduled() == []


def test_a_schedule_is_where_its_training_is(keeper: CronJobs) -> None:
    """Neither in another namespace nor with parameters, which a TrainingJob has none of."""
    elsewhere = json.loads(NIGHTLY.work)
    elsewhere["metadata"]["namespace"] = "speech"
    with pytest.raises(SpecError, match="own namespace"):
        keeper.put(Schedule(name="nightly", when=NIGHTLY.when, work=json.dumps(elsewhere)))
    with pytest.raises(SpecError, match="epochs"):
        keeper.put(Schedule(name="nightly", when=NIGHTLY.when, work=NIGHTLY.work, parameters={"epochs": 3}))
