# SPDX-License-Identifier: Apache-2.0
"""The reaper removes what no run needs any more, and never what one does, whatever happens while it looks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.cli import reap as cli_reap
from kfp_volcano.errors import ClusterError, ForbiddenError, InvalidError
from kfp_volcano.schemas.names import INSTANCE_LABEL, MANAGED_LABEL, OWNER, labels_for
from kfp_volcano.volcano.launcher.workflows import EXIT_S
from kfp_volcano.volcano.model.objects import time_text
from pipeline_runs import NS, RUNS, Refusing, World, job_of


@pytest.fixture(name="world")
def _world() -> World:
    return World()


OVER: dict[str, dict[str, Any]] = {
    "succeeded": {"status": {"phase": "Succeeded"}},
    "failed": {"status": {"phase": "Failed"}},
    "with an error": {"status": {"phase": "Error"}},
}


@pytest.mark.parametrize("how", OVER)
@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Restarting", "Aborted", "Failed", "Terminated"])
def test_a_job_goes_when_its_run_is_over(world: World, how: str, phase: str) -> None:
    """However the run has ended, and whatever the Job does, but for having succeeded."""
    world.workflow(RUNS[0])
    world.job(RUNS[0], phase=phase)
    world.change(RUNS[0], **OVER[how])
    decision = world.verdict()
    assert decision.what == "removed"
    assert how in decision.why
    assert world.jobs() == set()


def test_a_job_goes_when_its_run_is_gone(world: World) -> None:
    """KFP removes Workflows an hour after their end, and with the run."""
    world.job(RUNS[0])
    assert "is gone" in world.verdict().why
    assert world.jobs() == set()


@pytest.mark.parametrize(
    "content", [{}, {"status": {"phase": ""}}, {"status": {"phase": "Pending"}}, {"suspend": True}]
)
def test_a_run_that_lives_keeps_its_job(world: World, content: dict[str, Any]) -> None:
    """Also one that was just created, and one that is suspended, and also in another namespace than its Job."""
    world.workflow(RUNS[0], "pipelines", **content)
    world.job(RUNS[0])
    assert world.verdict().what == "keep"
    assert world.jobs()


@pytest.mark.parametrize("how", [{"activeDeadlineSeconds": 0}, {"shutdown": "Terminate"}, {"shutdown": "Stop"}])
def test_a_terminated_run_has_time_for_its_exit_step(world: World, how: dict[str, Any]) -> None:
    """The report comes first; where nothing happens any more, the Job goes all the same."""
    world.workflow(RUNS[0])
    world.job(RUNS[0])
    world.change(RUNS[0], **how)
    assert world.verdict().what == "keep"
    world.now += EXIT_S + 1
    assert world.verdict().what == "removed"


def test_a_limit_of_time_is_no_termination(world: World) -> None:
    """A deadline that is not zero is Argo's to keep."""
    world.workflow(RUNS[0], activeDeadlineSeconds=3600)
    world.job(RUNS[0])
    world.now += 7200
    assert world.verdict().what == "keep"


def test_a_succeeded_job_has_its_time(world: World) -> None:
    """`keepFor` long it can be looked at; then Volcano removes it, or this does."""
    world.job(RUNS[0], phase="Completed")
    assert "time to live" in world.verdict().why
    assert world.jobs()
    world.now += 3601
    assert world.verdict().what == "removed"


def test_a_job_that_no_pipeline_run_made_stays(world: World) -> None:
    """Its run has another form of id, or is on another cluster, or nobody knows who made it: no or a broken record."""
    world.job("cli-1234")
    world.job(RUNS[0], step="submit from outside")
    decisions = world.reap()
    assert [decision.what for decision in decisions] == ["keep", "keep"]
    for change in ({"op": "replace", "value": {OWNER: "{nothing"}}, {"op": "remove"}):
        for name in world.jobs():
            world.store.patch("Job", name, NS, [{"path": "/metadata/annotations", **change}])
        assert world.reap() == []


def test_without_a_view_of_runs_nothing_goes(world: World) -> None:
    """No Argo there, or it may not be looked at: then nobody knows which runs live."""
    world.job(RUNS[0])
    for error in (InvalidError("no such kind"), ForbiddenError("may not")):
        cluster = Refusing(world.store, lambda name, args, error=error: error if args[:1] == ("Workflow",) else None)
        assert "cannot be known" in world.verdict(cluster=cluster).why
    assert world.jobs()


def test_in_one_namespace_only_its_own_runs_are_known(world: World) -> None:
    """A Job whose run may be in another namespace stays; one that belongs to a Workflow goes with it."""

    def refuse(name: str, arguments: tuple[Any, ...]) -> ClusterError | None:
        everywhere = arguments[:1] == ("Workflow",) and arguments[1:2] in {(), ("",)}
        return ForbiddenError("not everywhere") if everywhere else None

    cluster = Refusing(world.store, refuse)
    world.job(RUNS[0])
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "1"}}
    world.job(RUNS[1], owner=owner)
    found = {decision.name: decision for decision in world.reap(cluster)}
    assert "no other may be looked at" in found[job_of(RUNS[0])].why
    assert found[job_of(RUNS[1])].what == "removed"


def test_a_dry_run_removes_nothing(world: World) -> None:
    """It says the same, and leaves all as it is."""
    world.job(RUNS[0])
    assert world.verdict(dry_run=True).what == "remove"
    assert world.jobs()


def test_a_removal_that_is_not_allowed_is_told_and_the_rest_goes_on(world: World) -> None:
    """One forbidden deletion keeps nobody from the next."""
    world.job(RUNS[0])
    world.job(RUNS[1])
    first = job_of(RUNS[0])
    cluster = Refusing(
        world.store, lambda name, args: ForbiddenError("no") if name == "delete" and args[1] == first else None
    )
    assert [decision.what for decision in world.reap(cluster)] == ["failed", "removed"]
    assert world.jobs() == {first}


def left(kind: str, job: str, **content: Any) -> dict[str, Any]:
    versions = {"ConfigMap": "v1", "Command": "bus.volcano.sh/v1alpha1", "Lease": "coordination.k8s.io/v1"}
    metadata = {"name": f"{job}-left", "namespace": NS, "labels": labels_for(job)}
    version = versions.get(kind, "resource.k8s.io/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {**metadata, **content.pop("metadata", {})}, **content}


@pytest.mark.parametrize("kind", ["ConfigMap", "Lease", "Command", "ResourceClaimTemplate"])
def test_what_has_neither_job_nor_owner_goes(world: World, kind: str) -> None:
    """While the Job is there it stays, and what has an owner is left to the garbage collector."""
    world.workflow(RUNS[0])
    world.job(RUNS[0])
    job = job_of(RUNS[0])
    content = {"action": "TerminateJob", "target": {"kind": "Job", "name": job}} if kind == "Command" else {}
    world.store.create(left(kind, job, **content))
    world.reap()
    assert world.store.list(kind, NS)[0]
    world.store.delete("Job", job, NS)
    assert world.verdict().kind == kind
    assert world.store.list(kind, NS)[0] == []


def test_a_queues_lease_goes_when_nobody_has_led_for_a_day(world: World) -> None:
    """It has no Job of its own to go with."""
    term = {"renewTime": time_text(world.now), "leaseDurationSeconds": 30, "holderIdentity": "a"}
    lease = left("Lease", "x", spec=term)
    del lease["metadata"]["labels"][INSTANCE_LABEL]
    world.store.create(lease)
    world.now += 23 * 3600
    assert world.reap() == []
    world.now += 2 * 3600
    assert "has led" in world.verdict().why
    assert world.store.list("Lease", NS)[0] == []


def test_leftovers_are_looked_for_where_that_is_allowed(world: World) -> None:
    """Not everywhere at once: then namespace by namespace, and past those that refuse."""
    for name in (NS, "closed"):
        world.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        world.store.create(left("ConfigMap", "gone", metadata={"namespace": name}))

    def refuse(name: str, arguments: tuple[Any, ...]) -> ClusterError | None:
        closed = arguments[:1] == ("ConfigMap",) and arguments[1:2] in {("",), ("closed",)}
        return ForbiddenError("not here") if closed else None

    (decision,) = world.reap(Refusing(world.store, refuse), "")
    assert (decision.namespace, decision.what) == (NS, "removed")


def test_an_object_that_is_not_ours_is_not_seen(world: World) -> None:
    """Without the label of this project nothing is a leftover."""
    foreign = left("ConfigMap", "gone")
    foreign["metadata"]["labels"][MANAGED_LABEL] = "another"
    world.store.create(foreign)
    assert world.reap() == []


def test_a_decision_reads_in_a_line(world: World) -> None:
    """What, which, and why."""
    world.job(RUNS[0])
    line = str(world.verdict())
    assert line == f"removed  Job {NS}/digits-0001: run {RUNS[0]} is over: its Workflow is gone"


def test_the_command_line_explains_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each decision, or JSON; one of the two ways to say whose Jobs is needed."""
    monkeypatch.setattr(cli_reap, "reach", lambda *_, **__: world.store)
    world.job(RUNS[0])
    runner = CliRunner()
    assert runner.invoke(main, ["reap"]).exit_code == 2
    assert runner.invoke(main, ["reap", "--namespace", ""]).exit_code == 2
    assert runner.invoke(main, ["reap", "--all-namespaces", "--namespace", NS]).exit_code == 2
    dry = runner.invoke(main, ["reap", "--all-namespaces", "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert dry.stdout.startswith(f"remove   Job {NS}/digits-0001: run ")
    done = json.loads(runner.invoke(main, ["reap", "--namespace", NS, "--yes", "-o", "json"]).stdout)
    assert [(each["name"], each["what"]) for each in done] == [("digits-0001", "removed")]
