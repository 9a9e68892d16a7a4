# SPDX-License-Identifier: Apache-2.0
"""A pod's phase from its containers, held to the kubelet's rule."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.cluster.pod_status import phase


def get_phase(  # noqa: C901, PLR0911, PLR0912  # as the original
    spec: dict[str, Any], info: dict[str, Any], *, terminal: bool, initialised: bool
) -> str:
    """getPhase of pkg/kubelet/kubelet_pods.go (Kubernetes 1.35), statement by statement."""
    pending_restartable = pending_regular = failed = 0
    for container in spec["initContainers"]:
        if container.get("restartPolicy") == "Always":
            continue
        status = info[container["name"]]
        if "running" in status["state"]:
            pending_regular += 1
        elif "terminated" in status["state"]:
            failed += status["state"]["terminated"]["exitCode"] != 0
        elif "terminated" in status["lastState"]:
            failed += status["lastState"]["terminated"]["exitCode"] != 0
        else:
            pending_regular += 1
    running = waiting = stopped = succeeded = 0
    for container in spec["initContainers"]:
        if container.get("restartPolicy") != "Always":
            continue
        status = info[container["name"]]
        if "running" in status["state"]:
            pending_restartable += not status["started"]
            running += 1
        elif "waiting" in status["state"] and "terminated" not in status["lastState"]:
            pending_restartable += 1
            waiting += 1
    for container in spec["containers"]:
        status = info[container["name"]]
        if "running" in status["state"]:
            running += 1
        elif "terminated" in status["state"]:
            stopped += 1
            succeeded += status["state"]["terminated"]["exitCode"] == 0
        elif "terminated" in status["lastState"]:
            stopped += 1
        else:
            waiting += 1
    policy = spec["restartPolicy"]
    if failed and policy == "Never":
        return "Failed"
    if pending_regular or (pending_restartable and not initialised) or waiting:
        return "Pending"
    if running:
        return "Running"
    if terminal:
        return "Succeeded" if stopped == succeeded else "Failed"
    if policy == "Always":
        return "Running"
    if stopped == succeeded:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


@st.composite
def statuses(draw: Any, name: str) -> dict[str, Any]:
    """A container in any state it may be in."""
    ended = {"terminated": {"exitCode": draw(st.sampled_from([0, 1]))}}
    state = draw(st.sampled_from([{"waiting": {}}, {"running": {}}, ended]))
    again = {"terminated": {"exitCode": draw(st.sampled_from([0, 1]))}}
    last = draw(st.sampled_from([{}, again]))
    return {"name": name, "state": state, "lastState": last, "started": "running" in state, "ready": False}


@st.composite
def pods(draw: Any) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    kinds = draw(st.lists(st.sampled_from([{}, {"restartPolicy": "Always"}]), max_size=3))
    spec = {
        "restartPolicy": draw(st.sampled_from(["Always", "OnFailure", "Never"])),
        "initContainers": [{"name": f"init-{index}", **kind} for index, kind in enumerate(kinds)],
        "containers": [{"name": f"main-{index}"} for index in range(draw(st.integers(1, 3)))],
    }
    inits = [draw(statuses(each["name"])) for each in spec["initContainers"]]
    return spec, inits, [draw(statuses(each["name"])) for each in spec["containers"]]


@given(pods(), st.booleans())
def test_the_phase_is_the_kubelets(pod: Any, terminal: bool) -> None:
    """For every state of the containers; a pod of which nothing is started any more is never Pending."""
    spec, inits, mains = pod
    info = {each["name"]: each for each in (*inits, *mains)}
    initialised = any("waiting" not in each["state"] or each["lastState"] for each in mains)
    expected = get_phase(spec, info, terminal=terminal, initialised=initialised)
    if terminal and expected == "Pending":
        expected = "Failed"
    assert phase(spec, inits, mains, terminal=terminal) == expected
