# SPDX-License-Identifier: Apache-2.0
"""What is decided about pods whose preflight failed: laws for any Job, pods, nodes and time."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.unfit import (
    Fail,
    Mark,
    Note,
    Release,
    Restart,
    TakeAway,
    actions,
    expiry,
    most_moves,
)
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.model.objects import time_text

NOW = 1_790_000_000.0
UNFIT_S = 600.0
CODES = st.sampled_from([1, 3, 124, 137, 143])
NODES = st.sampled_from(["node-0", "node-1", "node-2"])


def job(strategy="restart", phase="Pending", workers=4, **faults):
    """A Job of some workers with a preflight, as the cluster would have it."""
    manifest, spec = made(strategy, workers, tuple(sorted(faults.items())))
    return {**copy.deepcopy(manifest), "status": {"state": {"phase": phase}}}, spec


@functools.cache
def made(strategy, workers, faults):
    spec = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "checked", "namespace": "ml"},
            "spec": {
                "framework": "custom",
                "image": "any",
                "command": ["train"],
                "queue": "research",
                "roles": {"worker": {"replicas": workers}},
                "elasticity": {"strategy": strategy},
                "faults": {"preflight": {"command": ["check"], "unfitFor": UNFIT_S}, **dict(faults)},
            },
        }
    )
    manifest = job_manifest(spec, name="checked", run_id="r", step="s", workers=workers)
    manifest["metadata"] |= {"uid": "job-uid", "creationTimestamp": time_text(NOW - 3600)}
    return manifest, spec


@st.composite
def jobs(draw):
    strategy = draw(st.sampled_from(["restart", "fixed"]))
    evicted = {"evicted": draw(st.sampled_from(["replace", "restartJob", "fail"]))} if strategy == "fixed" else {}
    phase = draw(st.sampled_from(["", "Pending", "Running", "Restarting", "Terminating", "Completed", "Aborted"]))
    manifest, spec = job(strategy, phase, draw(st.sampled_from([1, 4, 40])), retries=draw(st.integers(1, 4)), **evicted)
    known = draw(st.lists(st.builds(move, st.integers(0, 5), NODES, CODES), max_size=4, unique_by=lambda m: m.uid))
    manifest["metadata"]["annotations"][names.MOVES] = records.dump(known)
    return manifest, spec


def move(number, node, code):
    return records.Move(pod=f"pod-{number}", uid=f"uid-{number}", node=node, exit_code=code, at=NOW - 60)


@st.composite
def failed_pods(draw, codes=CODES):
    number, code = draw(st.integers(0, 5)), draw(codes)
    ended = {"exitCode": code, "finishedAt": time_text(NOW - draw(st.integers(0, 700))), "message": "no device"}
    again = draw(st.booleans())
    status = {
        "name": names.PREFLIGHT,
        "state": {"running": {}} if again else {"terminated": ended},
        "lastState": {"terminated": ended} if again else {},
    }
    return pod(number, draw(NODES), status, terminating=draw(st.booleans()))


def pod(number, node, preflight, *, phase="Pending", terminating=False):
    leaving = {"deletionTimestamp": time_text(NOW)} if terminating else {}
    return {
        "metadata": {"name": f"pod-{number}", "uid": f"uid-{number}", **leaving},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "initContainerStatuses": [preflight]},
    }


@st.composite
def nodes(draw):
    def node(name):
        kind = draw(st.sampled_from(["none", "person", "mark", "broken"]))
        mark = records.Unfit(until=NOW + draw(st.integers(-600, 600)), job="ml/other", pod="p", exit_code=1)
        labels = {names.UNFIT_LABEL: "true"} if kind != "none" else {}
        text = {"mark": records.dump(mark), "broken": "{"}.get(kind)
        return {"metadata": {"name": name, "labels": labels, "annotations": {names.UNFIT: text} if text else {}}}

    return [node(name) for name in ("node-0", "node-1", "node-2")]


PODS = st.lists(failed_pods(), max_size=5, unique_by=lambda each: each["metadata"]["uid"])


def wanted(subject, pods, found, now=NOW):
    return actions(subject[0], pods, found, now)


@given(jobs(), PODS, nodes())
def test_what_is_done_is_written_down_before(subject, pods, found):
    """A pod is taken away, and a Job told to begin anew, only when the Job's record names the pod."""
    noted = {each["uid"] for each in json.loads(subject[0]["metadata"]["annotations"][names.MOVES])}
    for action in wanted(subject, pods, found):
        if isinstance(action, Note):
            noted = {each.uid for each in action.moves}
        if isinstance(action, TakeAway):
            assert action.uid in noted
        if isinstance(action, Restart):
            assert noted


@given(jobs(), PODS, nodes())
def test_no_more_pods_are_moved_than_may_be(subject, pods, found):
    """Where there would be more, nothing is done but to end the Job."""
    manifest, spec = subject
    done = wanted(subject, pods, found)
    notes = [action for action in done if isinstance(action, Note)]
    assert all(len(note.moves) <= most_moves(manifest, spec) for note in notes)
    if any(isinstance(action, Fail) for action in done):
        assert {type(action) for action in done} <= {Fail, Release}


@given(jobs(), PODS, nodes())
def test_a_job_that_is_over_is_left_alone(subject, pods, found):
    """Its pods are not touched, nor is it; nodes may still be marked for those that come."""
    if subject[0]["status"]["state"]["phase"] not in {"", "Pending", "Running"}:
        assert not any(isinstance(each, TakeAway | Restart | Fail) for each in wanted(subject, pods, found))


@given(jobs(), PODS, nodes())
def test_it_is_done_once(subject, pods, found):
    """Whoever looks again when all of it is done has nothing to do; two who look at once want the same."""
    manifest, _ = subject
    done = wanted(subject, pods, found)
    assert done == wanted(subject, pods, found)
    if any(isinstance(action, Fail) for action in done):
        manifest["status"]["state"]["phase"] = "Terminating"
    for action in done:
        if isinstance(action, Note):
            manifest["metadata"]["annotations"][names.MOVES] = records.dump(list(action.moves))
        elif isinstance(action, TakeAway):
            pods = [each for each in pods if each["metadata"]["uid"] != action.uid]
        elif isinstance(action, Mark | Release):
            (node,) = [each for each in found if each["metadata"]["name"] == action.node]
            node["metadata"]["labels"] = {names.UNFIT_LABEL: "true"} if isinstance(action, Mark) else {}
            node["metadata"]["annotations"] = (
                {names.UNFIT: records.dump(action.unfit)} if isinstance(action, Mark) else {}
            )
    assert wanted((manifest, None), pods, found) == []


@given(jobs(), PODS, nodes(), st.integers(0, 1200))
def test_marks_last_as_long_as_the_spec_says(subject, pods, found, later):
    """From the failure on; one that lasts longer is not shortened, what a person set is not taken away."""
    ends = {pod["metadata"]["name"]: pod for pod in pods}
    for action in wanted(subject, pods, found, NOW + later):
        if isinstance(action, Mark):
            status = ends[action.unfit.pod]["status"]["initContainerStatuses"][0]
            ended = status["state"].get("terminated") or status["lastState"]["terminated"]
            assert time_text(action.unfit.until - UNFIT_S) == ended["finishedAt"]
            assert action.unfit.until > NOW + later
            before = next(expiry(node) for node in found if node["metadata"]["name"] == action.node)
            assert before is None or before < action.unfit.until
        if isinstance(action, Release):
            before = next(expiry(node) for node in found if node["metadata"]["name"] == action.node)
            assert before is not None
            assert before <= NOW + later


@given(st.sampled_from(["restart", "fixed"]), st.sampled_from(["replace", "restartJob", "fail"]))
def test_a_pod_is_taken_away_alone_only_where_the_job_bears_it(strategy, evicted):
    """A fixed Job with a policy on pods that go begins anew as a whole, by the controller itself."""
    subject = job(strategy, **({"evicted": evicted} if strategy == "fixed" else {}))
    status = {"name": names.PREFLIGHT, "state": {"terminated": {"exitCode": 3, "finishedAt": time_text(NOW)}}}
    kinds = {type(action) for action in wanted(subject, [pod(1, "node-0", status)], [])}
    alone = strategy == "restart" or evicted == "replace"
    assert kinds == {Note, Mark, TakeAway if alone else Restart}


@given(failed_pods(st.just(127)), nodes())
def test_a_preflight_that_could_not_be_run_marks_nothing(failed, found):
    """The Job ends: no node is better than another."""
    done = [each for each in wanted(job(), [failed], found) if not isinstance(each, Release)]
    (only,) = done
    assert isinstance(only, Fail)
    assert asdict(only)["why"].count("127")


@given(st.sampled_from([137, 143]), st.booleans())
def test_a_preflight_that_was_ended_has_not_failed(code, evicted):
    """Its pod was deleted, or evicted from its node."""
    status = {"name": names.PREFLIGHT, "state": {"terminated": {"exitCode": code, "finishedAt": time_text(NOW)}}}
    ended = pod(1, "node-0", status, phase="Failed" if evicted else "Pending", terminating=not evicted)
    if evicted:
        ended["status"]["reason"] = "Evicted"
    assert wanted(job(), [ended], []) == []


def test_a_preflight_that_has_passed_is_forgotten():
    """Also where it had failed before in the same pod."""
    ended = {"exitCode": 3, "finishedAt": time_text(NOW)}
    status = {
        "name": names.PREFLIGHT,
        "state": {"terminated": {**ended, "exitCode": 0}},
        "lastState": {"terminated": ended},
    }
    assert wanted(job(), [pod(1, "node-0", status, phase="Running")], []) == []
