# SPDX-License-Identifier: Apache-2.0
"""The model's admission says of any Job, Queue and PodGroup what a real API server with Volcano's policies says.

The model speaks for Volcano's webhooks; the policies stand in for them in the API server. The two differ in known
places only: `WEBHOOK_ONLY` and `POLICY_ONLY`.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from apiserver.client import Answer
from apiserver.server import ApiServer
from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.admission import admit_create, admit_update
from strategies.edits import apply, edits, lots
from strategies.manifests import EXAMPLES, fields_of, manifests

pytestmark = pytest.mark.cluster

SEEDED = settings(max_examples=2 * settings.default.max_examples, derandomize=settings.default.max_examples < 1000)
"""2,000 of each kind in the profile `full`, a tenth otherwise."""

WEBHOOK_ONLY = {
    "queues, their state and children": r" ?(unable to find job queue|can (only|not) submit job to)[^;]*;?",
    "plugins": r" ?unable to find job plugin: [^;]*;?",
    "the order of tasks": r" ?job has dependencies between tasks, but doesn't form [^;]*;?",
    "partitions": r"'(Replicas|MinAvailable)' (are|is) not equal to \w+\*\w+ in task: \S*, job: \S*",
    "tiers": r"(in subGroupPolicy '[^']*': )?must not specify 'highestTierAllowed' and 'highestTierName'[^.]*y\.? ?",
    "mpi": r"The specified mpi master task was not found",
    "NUMA": r" ?the cpu request isn't  an integer in spec\.task\[\d+\] container\[\d+\]\.",
    "pod templates": r"(?s) ?spec\.task\[\d+\]\.template\..*",
    "names of pods": r" ?create pod with name .*? validate failed \[[^]]*\];?",
    "claims named and described": r"conflict: If you want to use an existing PVC, just .* to specify VolumeClaimName",
    "names of claims": r"invalid VolumeClaimName .* : \[[^]]*\]",
    "types of Go": r"json: cannot unmarshal .*",
    "a place for defaults": r"Internal error occurred: add operation does not apply: doc is missing path: .*",
    "what ParseQuantity knows": r"(quantities must match|unable to parse quantity's suffix|not a number: ).*",
    "what ParseDuration knows": r"time: invalid duration .*",
    "a queue's place": r"(queue .* cannot use itself as parent|failed to get parent queue .* not found)",
    "a queue's family": r"((parent )?queue .* validation failed: sum of children's .*|queue .* capability\[.*)",
    "amounts below nothing": r'requestBody\.spec\.\S+: Invalid value: "[^"]*": must be greater than or equal to 0(, )?',
    "parts of devices": r'requestBody\.spec\.\S+: Invalid value: "[^"]*": must be an integer(, )?',
    "a path of queues": r"\S+ is not allowed to be in the sub path of .*",
    "policies of tasks, and lists of events": r"\d+ errors? occurred:\n(\t\*.*\n)+\n valid events are [^;]*;",
}
"""What the webhooks refuse and the policies let pass, by what it is about: the model's sentences."""

POLICY_ONLY = {
    "invalid policy action": "the policies' list of actions lacks RestartPartition",
    "no such key: replicas": "the webhook takes absent replicas for 0, the policies' expressions fail",
    "no such key: name": "the webhook gives a task without a name one, the policies' expressions fail",
    'name: Invalid value: "": ': "the same: a name that is empty is none",
    "no such key: spec": "the policies' expressions fail on a Job without a spec, which the model finds has no tasks",
    "no such overload": "the webhook reads whole numbers as quantities, the policies' quantity() only text",
    "must have the same length with": "the webhook splits a path that is absent into one name, which is empty",
    "weights in volcano.sh/hierarchy-weights must be larger than 0": "the webhook reads more numbers than 1 and 1.5",
    "does not exist": "a mutating policy's patch needs the parent of what it adds",
}
"""What the policies refuse and the webhooks take, by a part of the policies' message, and why."""

AT_FAULT = {
    "duplicated task name": r"spec\.tasks\[\d+\]\.name",
    "'minAvailable' is greater than 'replicas'": r"spec\.tasks\[\d+\]\.minAvailable",
    "job 'minAvailable' should not be greater": r"spec\.minAvailable",
    "No task specified": r"spec\.tasks",
    "policy": r"spec\.policies",
    "exitCode": r"spec\.policies",
    "if there's *": r"spec\.policies",
    "is not a valid error code": r"spec\.policies",
    "mountPath": r"spec\.volumes.*",
    "VolumeClaim": r"spec\.volumes.*",
    "job name": r"metadata\.name",
    "must be <= capability": r"spec\.(deserved|capability)",
    "must be >= guarantee": r"spec\.(guarantee|deserved)",
    "hierarchy": r"metadata\.annotations",
}
"""Which field a policy's message is about, as the model names it."""


def model(manifest: dict[str, Any]) -> tuple[dict[str, Any], InvalidError | None]:
    """What the model stores, or why it refuses, on a cluster that has the queues that are named."""
    spec = manifest.get("spec") if isinstance(manifest.get("spec"), dict) else {}
    named = [str(name) for name in (spec.get("queue") or "default", spec.get("parent"))]
    there = {("", name): {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}} for name in named}
    try:
        return admit_create(copy.deepcopy(manifest), {"Queue": there}), None
    except InvalidError as error:
        return {}, error


def disagreement(answer: Answer, refused: InvalidError | None) -> str:
    """How the server's answer and the model's differ; empty where they do not, or only where they are known to."""
    if refused is None:
        known = answer.accepted or any(part in answer.message for part in POLICY_ONLY)
        return "" if known else f"the server refuses: {answer.message}"
    if not _beyond_the_webhook(str(refused)):  # the policies cannot know of it, and the model has looked no further
        return ""
    if answer.accepted:
        return f"only the model refuses: {refused}"
    if answer.fields and set(answer.fields) != set(refused.fields):
        return f"the server finds fault with {answer.fields}, the model with {refused.fields}"
    return _about_another(answer, refused)


def _beyond_the_webhook(refusal: str) -> str:
    """What is left of a refusal without what only the webhooks know of."""
    rest = re.sub(r'^admission webhook "\S+" denied the request: ', "", refusal)
    for sentence in WEBHOOK_ONLY.values():
        rest = re.sub(sentence, "", rest)
    return rest.strip(" []")


def _about_another(answer: Answer, refused: InvalidError) -> str:
    """A policy names no field: its message says what it is about."""
    if "ValidatingAdmissionPolicy" not in answer.message or "resulted in error" in answer.message:
        return ""
    reason = answer.message.partition("denied request: ")[2]
    wanted = next((field for part, field in AT_FAULT.items() if part in reason), None)
    if wanted and not any(re.fullmatch(wanted, field) for field in refused.fields):
        return f"the policy says {reason!r}, the model finds fault with {refused.fields}"
    return ""


def stored(manifest: dict[str, Any], given: dict[str, Any]) -> Any:
    """The spec of a stored object, without what only the webhooks fill into tasks."""
    spec = copy.deepcopy(manifest.get("spec"))
    if manifest["kind"] != "Job":
        return spec
    for task, was in zip(spec["tasks"], given["spec"]["tasks"], strict=True):
        filled_in = {"minAvailable"} if was.get("minAvailable") is None else set()
        for field in filled_in | ({"maxRetry"} if not was.get("maxRetry") else set()):
            task.pop(field, None)
    return spec


@pytest.mark.parametrize("kind", EXAMPLES)
@given(data=st.data())
@SEEDED
def test_model_and_server_agree_on_new_objects(apiserver: ApiServer, kind: str, data: st.DataObject) -> None:
    """For any manifest, changed in any field, both accept and store the same, or both refuse the same field."""
    example, changes = data.draw(manifests(kind))
    manifest = apply(example, changes)
    answer = apiserver.admin.create(manifest, dry_run=True)
    admitted, refused = model(manifest)
    event(f"server {'accepts' if answer.accepted else 'refuses'}, model {'refuses' if refused else 'accepts'}")
    assert disagreement(answer, refused) == ""
    if answer.accepted and not refused:
        assert stored(dict(answer.body), manifest) == stored(admitted, manifest)


UPDATE_ONLY = r"job updates may not change fields other than .*|'minAvailable' must be <= 'replicas' in task.*"
"""What the webhook refuses of a change and the policies let pass."""


@pytest.fixture(scope="module")
def live_jobs(apiserver: ApiServer) -> list[dict[str, Any]]:
    """The examples as they are stored."""
    named = [
        {**example, "metadata": {**example["metadata"], "name": f"live-{number}"}}
        for number, example in enumerate(EXAMPLES["Job"])
    ]
    return [dict(apiserver.admin.create(each).expect()) for each in named]


@given(data=st.data())
@SEEDED
def test_model_and_server_agree_on_changed_jobs(
    apiserver: ApiServer, live_jobs: list[dict[str, Any]], data: st.DataObject
) -> None:
    """What the server refuses of a change to a live Job the model refuses; what else the webhooks refuse is known."""
    live = data.draw(lots()).choice(live_jobs)
    changes = data.draw(edits(fields_of("Job", live=True), live))
    changed = apply(live, changes)
    answer = apiserver.admin.update(changed, dry_run=True)
    try:
        admit_update(live, changed, {})
        refused = ""
    except InvalidError as error:
        refused = str(error)
    if not refused:
        assert answer.accepted, answer.message
    elif answer.accepted:
        assert re.sub(UPDATE_ONLY, "", _beyond_the_webhook(refused)) == ""
