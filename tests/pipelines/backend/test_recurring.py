# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from apiserver.faults import Refuse, Reset, Seen
from kfp_volcano.errors import ConflictError, KfpVolcanoError, NotFoundError, SpecError, UnavailableError
from kfp_volcano.pipelines.backend.recurring import RecurringRuns
from kfp_volcano.pipelines.client import Client
from kfp_volcano.pipelines.ir import CompiledPipeline
from kfp_volcano.schemas.cron import Cron
from kfp_volcano.schemas.schedule import Change, Changes, Every, Schedule
from kfpapi.server import KfpApi
from kfpapi.state import Backend

Make = Callable[..., RecurringRuns]


@pytest.fixture(name="nightly")
def _nightly(small: CompiledPipeline) -> Schedule:
    """Every night at half past two."""
    return Schedule(name="nightly", when=Cron.parse("30 2 * * *"), work=small.text, parameters={"epochs": 3})


@pytest.fixture(name="make")
def _make(client: Callable[..., Client]) -> Make:
    """Schedules at the backend."""

    def make(**options: object) -> RecurringRuns:
        return RecurringRuns(client().connection, today=lambda: date(2026, 11, 30), **options)  # type: ignore[arg-type]

    return make


def only(backend: Backend) -> dict[str, object]:
    """The one recurring run that is there."""
    (row,) = backend.rows["recurring_runs"].values()
    return row


def test_a_schedule_is_a_recurring_run_one_at_a_time_without_catch_up(make: Make, backend: Backend, nightly: Schedule):
    """Six fields with the second first, one run at a time, no catch-up, the version and the parameters."""
    assert make(service_account="trainer").put(nightly) is Change.CREATED
    row = only(backend)
    assert row["trigger"] == {"cron_schedule": {"cron": "0 30 2 * * *"}}
    assert (row["max_concurrency"], row["no_catchup"], row["status"]) == ("1", True, "ENABLED")
    assert row["runtime_config"] == {"parameters": {"epochs": 3}}
    assert row["service_account"] == "trainer"
    assert row["pipeline_version_reference"]["pipeline_version_id"] in backend.rows["pipeline_versions"]


def test_the_same_again_changes_nothing(make: Make, backend: Backend, nightly: Schedule):
    """Whoever says it and however often."""
    make().put(nightly)
    before = dict(backend.rows["recurring_runs"])
    assert make().put(nightly) is Change.UNCHANGED
    assert backend.rows["recurring_runs"] == before


@pytest.mark.parametrize(
    "different",
    [
        {"when": Every(3600)},
        {"when": Cron.parse("31 2 * * *")},
        {"time_zone": "Asia/Tokyo"},
        {"parameters": {"epochs": 4}},
        {"catch_up": True},
    ],
)
def test_other_content_replaces_it(make: Make, backend: Backend, nightly: Schedule, different: dict[str, object]):
    """There is one afterwards, with the new content; runs of the old one are left alone; back again is a change too."""
    make().put(nightly)
    first = only(backend)["recurring_run_id"]
    changed = replace(nightly, **different)
    assert make().put(changed) is Change.UPDATED
    assert only(backend)["recurring_run_id"] != first
    assert only(backend)["status"] == "ENABLED"
    assert make().put(changed) is Change.UNCHANGED
    assert make().put(nightly) is Change.UPDATED
    assert set(backend.deleted_with) == {"ORPHAN"}
    assert max(counts.get("nightly", 0) for counts in backend.enabled_history) == 1


def test_a_pipeline_that_has_changed_is_a_new_version_and_replaces_it(make: Make, backend: Backend, nightly: Schedule):
    """The schedule runs what it was last given."""
    make().put(nightly)
    longer = nightly.work.replace('"Default: 0.5"', "").replace("0.5", "0.25")
    assert longer != nightly.work
    assert make().put(replace(nightly, work=longer)) is Change.UPDATED
    assert len(backend.rows["pipeline_versions"]) == 2
    version = only(backend)["pipeline_version_reference"]["pipeline_version_id"]  # type: ignore[index]
    assert (
        version == max(backend.rows["pipeline_versions"].values(), key=lambda r: r["created_at"])["pipeline_version_id"]
    )


def test_some_of_it_can_be_changed(make: Make, backend: Backend, nightly: Schedule):
    """What is not named stays: parameters, version, time, and whether it is paused."""
    make().put(nightly)
    make().pause("nightly")
    assert make().change("nightly", Changes(parameters={"name": "b"})) is Change.UPDATED
    row = only(backend)
    assert row["runtime_config"] == {"parameters": {"epochs": 3, "name": "b"}}
    assert row["trigger"] == {"cron_schedule": {"cron": "0 30 2 * * *"}}
    assert row["status"] == "DISABLED"
    assert make().change("nightly", Changes(when=Every(600))) is Change.UPDATED
    assert only(backend)["trigger"] == {"periodic_schedule": {"interval_second": "600"}}
    assert make().change("nightly", Changes(when=Every(600))) is Change.UNCHANGED
    assert make().change("nightly", Changes(parameters={"share": "1.0"})) is Change.UPDATED
    only(backend)["runtime_config"]["parameters"]["share"] = 1  # type: ignore[index]  # as a backend gives it back
    assert make().change("nightly", Changes(parameters={"epochs": 3})) is Change.UNCHANGED
    with pytest.raises(SpecError, match="no such parameter"):
        make().change("nightly", Changes(parameters={"absent": "b"}))


def test_pausing_and_resuming(make: Make, backend: Backend, nightly: Schedule):
    """Each once; resumed, it does not make up for what it missed, which KFP would for the last time missed."""
    make().put(nightly)
    first = only(backend)["recurring_run_id"]
    assert [make().pause("nightly"), make().pause("nightly")] == [Change.PAUSED, Change.UNCHANGED]
    assert only(backend)["status"] == "DISABLED"
    assert [make().resume("nightly"), make().resume("nightly")] == [Change.RESUMED, Change.UNCHANGED]
    assert only(backend)["status"] == "ENABLED"
    assert only(backend)["recurring_run_id"] != first
    make().change("nightly", Changes(catch_up=True))
    same = only(backend)["recurring_run_id"]
    make().pause("nightly")
    make().resume("nightly")
    assert only(backend)["recurring_run_id"] == same


def test_put_pauses_and_resumes_as_it_is_told(make: Make, nightly: Schedule):
    """Whether it is enabled is part of what is ordered."""
    make().put(replace(nightly, enabled=False))
    assert make().put(nightly) is Change.RESUMED
    assert make().put(replace(nightly, enabled=False)) is Change.PAUSED


def test_deleting_leaves_runs_alone(make: Make, backend: Backend, nightly: Schedule):
    """Kubernetes would take the runs away with what started them."""
    make().put(nightly)
    assert [make().delete("nightly"), make().delete("nightly")] == [Change.DELETED, Change.UNCHANGED]
    assert backend.deleted_with == ["ORPHAN"]


def test_what_is_not_there_is_said(make: Make):
    """No schedule of that name."""
    for order in (lambda: make().pause("x"), lambda: make().resume("x"), lambda: make().change("x", Changes())):
        with pytest.raises(NotFoundError, match="no schedule x"):
            order()


def test_another_s_recurring_run_is_left_alone(make: Make, backend: Backend, nightly: Schedule):
    """One of the same name that was made in the UI: neither changed nor deleted nor listed."""
    make().put(nightly)
    row = {**only(backend), "description": "by hand", "recurring_run_id": "other"}
    backend.rows["recurring_runs"] = {"other": row}
    for order in (lambda: make().put(nightly), lambda: make().delete("nightly"), lambda: make().pause("nightly")):
        with pytest.raises(ConflictError, match="did not make"):
            order()
    assert make().scheduled() == []
    assert backend.rows["recurring_runs"] == {"other": row}


def test_the_list_says_what_a_person_asks(make: Make, backend: Backend, nightly: Schedule):
    """When, what, whether it is paused, how its last run stands."""
    make().put(replace(nightly, time_zone="Asia/Tokyo"))
    make().put(replace(nightly, name="hourly", when=Every(3600), enabled=False))
    backend.fire("nightly")
    hourly, each = make().scheduled()
    assert (each.name, each.enabled, each.when, each.state) == ("nightly", True, "0 30 2 * * * Asia/Tokyo", "PENDING")
    assert each.work.startswith("small-")
    assert (hourly.when, hourly.enabled, hourly.last, hourly.note) == ("every 1h", False, None, "")


def test_a_zone_is_moved_to_the_backend_s_or_refused_before_anything_is_made(
    make: Make, backend: Backend, api: KfpApi, nightly: Schedule
):
    """KFP reads every schedule in one zone, which only its administrator sets."""
    make().put(replace(nightly, time_zone="Asia/Tokyo"))
    assert only(backend)["trigger"] == {"cron_schedule": {"cron": "0 30 17 * * *"}}
    berlin = replace(nightly, time_zone="Europe/Berlin", name="berlin")
    with pytest.raises(SpecError, match="CRON_SCHEDULE_TIMEZONE=Europe/Berlin"):
        make().put(berlin)
    assert len(backend.rows["recurring_runs"]) == 1
    assert make(backend_zone="Europe/Berlin").put(berlin) is Change.CREATED
    with pytest.raises(SpecError, match="no time zone"):
        make().put(replace(nightly, time_zone="Mars/Olympus"))


def test_what_is_wrong_with_an_order_is_said_before_anything_is_made(make: Make, backend: Backend, nightly: Schedule):
    """Parameters, interval, name, pipeline."""
    for wrong in (
        replace(nightly, parameters={}),
        replace(nightly, when=Every(0)),
        replace(nightly, name=""),
        replace(nightly, work="kind: Job"),
    ):
        with pytest.raises(SpecError):
            make().put(wrong)
    assert backend.rows["recurring_runs"] == {}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("how", ["killed", "silent", "lost"])
def test_whatever_stops_an_update_half_way_the_next_one_finds_one_schedule(
    make: Make, backend: Backend, api: KfpApi, nightly: Schedule, how: str
):
    """At each request: the process is killed, the backend stays silent, or the answer is lost.

    At no moment two are enabled; afterwards the same order comes to exactly one, enabled, with the new content; and
    where the order itself says that it failed, one is enabled all along.
    """
    changed = replace(nightly, when=Every(60))
    for number in itertools.count():
        backend.rows["recurring_runs"].clear()
        backend.enabled_history.clear()
        api.fault = lambda _: None
        make().put(nightly)
        count = itertools.count()

        def fault(_: Seen, count: itertools.count[int] = count, number: int = number) -> Refuse | Reset | None:
            at = next(count)
            if how == "lost":
                return Reset(carried_out=True) if at == number else None
            return Refuse(503) if at == number or (at > number and how == "killed") else None

        api.fault = fault
        try:
            if how == "killed":
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(backend, "sleep", _kill)
                    _at(make(), backend).put(changed)
            else:
                make().put(changed)
        except (Killed, KfpVolcanoError):
            pass
        asked = next(count)
        api.fault = lambda _: None
        assert make().put(changed) in (Change.UPDATED, Change.UNCHANGED, Change.RESUMED)
        row = only(backend)
        assert (row["status"], row["trigger"]) == ("ENABLED", {"periodic_schedule": {"interval_second": "60"}})
        assert max(counts.get("nightly", 0) for counts in backend.enabled_history) == 1
        if asked <= number:
            return
    raise AssertionError


def _kill(_seconds: float) -> None:
    raise Killed


def _at(schedules: RecurringRuns, backend: Backend) -> RecurringRuns:
    connection = schedules._connection
    connection.patience = replace(connection.patience, sleep=backend.sleep)
    return schedules


def test_where_the_new_one_cannot_be_enabled_the_old_one_goes_on(
    make: Make, backend: Backend, api: KfpApi, nightly: Schedule
):
    """The backend fails there and then: the order fails, the schedule is as it was."""
    make().put(nightly)
    before = only(backend)["recurring_run_id"]
    broken = {"on": True}

    def fault(seen: Seen) -> Refuse | None:
        return Refuse(500) if broken["on"] and seen.path.endswith(":enable") and before not in seen.path else None

    api.fault = fault
    with pytest.raises(UnavailableError):
        make().put(replace(nightly, when=Every(60)))
    assert (only(backend)["recurring_run_id"], only(backend)["status"]) == (before, "ENABLED")


def test_an_interrupted_update_is_seen_in_the_list(make: Make, backend: Backend, nightly: Schedule):
    """Two of one name: the list says so; any order for it puts it right."""
    make().put(nightly)
    make().put(replace(nightly, name="other", when=Every(60)))
    newer = next(row for row in backend.rows["recurring_runs"].values() if row["display_name"] == "other")
    newer.update(display_name="nightly", status="DISABLED", mode="DISABLE")
    (each,) = make().scheduled()
    assert "interrupted" in each.note
    told: list[str] = []
    assert make(tell=told.append).resume("nightly") is Change.UNCHANGED
    assert only(backend)["status"] == "ENABLED"
    assert only(backend)["trigger"] == {"periodic_schedule": {"interval_second": "60"}}
    assert "finishing" in told[0]


def test_a_run_of_the_former_schedule_is_told_of(make: Make, backend: Backend, nightly: Schedule):
    """The new recurring run does not count it: two may be there at once, and who orders that should know."""
    make().put(nightly)
    run = backend.fire("nightly")
    told: list[str] = []
    make(tell=told.append).put(replace(nightly, when=Every(60)))
    assert run in told[0]
