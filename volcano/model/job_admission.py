"""Admission of Jobs: the mutating webhook's defaults, the CRD's schema, the validating webhook's rules.

Sources: pkg/webhooks/admission/jobs/{mutate/mutate_job.go,validate/admit_job.go,validate/util.go}, Volcano 1.15.1.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, status_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ACTIONS", "EVENTS", "admit_create", "admit_update"]

EVENTS = ("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated")
"""Events that a policy may name."""
ACTIONS = (
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob",
    "ResumeJob",
)  # fmt: skip
"""Actions that a policy may name."""

_SCHEMA_EVENTS = (
    "*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "OutOfSync",
    "CommandIssued", "JobUpdated", "TaskFailed",
)  # fmt: skip
_PLUGINS = frozenset({"env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "hcclrank", "ray"})
_NEED_SVC = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
_TASK_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_DEFAULT_RETRIES = 3
_LONGEST_NAME = 63
_LONGEST_QUEUE = 253


def admit_create(job: Manifest, objects: Objects) -> Manifest:
    """The Job as it is stored. Raises InvalidError with the message of whoever refused it."""
    bad = _bad_quantity(job)
    if bad:
        raise InvalidError(f'admission webhook "mutatejob.volcano.sh" denied the request: {bad}')
    defaulted = _with_defaults(job)
    _check_schema(defaulted)
    problems = "".join(_create_problems(defaulted, objects)).strip()
    if problems:
        raise _denied(problems)
    return defaulted


def admit_update(old: Manifest, new: Manifest) -> None:
    """Only minAvailable, tasks[*].replicas, tasks[*].minAvailable and priorityClassName may change."""
    _check_schema(new)
    before, after = old["spec"], new["spec"]
    for task in after["tasks"]:
        if task.get("minAvailable", 0) > task["replicas"]:
            raise _denied(f"'minAvailable' must be <= 'replicas' in task: {task['name']}")
    if after.get("minAvailable", 0) > sum(task["replicas"] for task in after["tasks"]):
        raise _denied("job 'minAvailable' must not be greater than total replicas")
    if len(before["tasks"]) != len(after["tasks"]):
        raise _denied("job updates may not add or remove tasks")
    if _fixed_part(before) != _fixed_part(after):
        raise _denied(
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec`"
            " and `PriorityClassName`"
        )


def _denied(problems: str) -> InvalidError:
    return InvalidError(f'admission webhook "validatejob.volcano.sh" denied the request: {problems}')


def _fixed_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {name: value for name, value in spec.items() if name not in {"minAvailable", "priorityClassName", "tasks"}}
    fixed["tasks"] = [
        {name: value for name, value in task.items() if name not in {"replicas", "minAvailable"}}
        for task in spec["tasks"]
    ]
    return fixed


def _bad_quantity(job: Manifest) -> str:
    """Decoding the object fails on a quantity that is none, before any rule is looked at."""
    for task in job.get("spec", {}).get("tasks") or ():
        pod = (task.get("template") or {}).get("spec") or {}
        for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
            for amounts in (container.get("resources") or {}).values():
                problem = next(filter(None, map(_quantity_problem, amounts.values())), "")
                if problem:
                    return problem
    return ""


def _quantity_problem(quantity: str | float) -> str:
    try:
        parse_quantity(quantity)
    except ValueError as error:
        return str(error)
    return ""


def _with_defaults(job: Manifest) -> Manifest:
    """mutate_job.go: queue, scheduler, retries, task names, minimums, plugins that others need."""
    spec = dict(job["spec"])
    spec["queue"] = spec.get("queue") or "default"
    spec["schedulerName"] = spec.get("schedulerName") or "volcano"
    spec["maxRetry"] = spec.get("maxRetry") or _DEFAULT_RETRIES
    tasks = []
    for index, given in enumerate(spec.get("tasks") or ()):
        task = {**given, "name": given.get("name") or f"default{index}", "replicas": given.get("replicas", 0)}
        task["maxRetry"] = given.get("maxRetry") or _DEFAULT_RETRIES
        task.setdefault("minAvailable", task["replicas"])
        tasks.append(task)
    spec["tasks"] = tasks
    spec["minAvailable"] = spec.get("minAvailable") or sum(task["minAvailable"] for task in tasks)
    if spec.get("plugins") and _NEED_SVC & spec["plugins"].keys():
        spec["plugins"] = {"svc": [], **spec["plugins"]}
    if "mpi" in spec.get("plugins", {}):
        spec["plugins"] = {"ssh": [], **spec["plugins"]}
    metadata = {"namespace": "default", **job["metadata"]}
    return {**job, "metadata": metadata, "spec": spec}


def _check_schema(job: Manifest) -> None:
    """What the CRD's schema refuses, of the fields that this project uses."""
    problems = list(_schema_problems(job["spec"]))
    if problems:
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise InvalidError(f'Job.batch.volcano.sh "{key_of(job)[1]}" is invalid: {listed}')


def _schema_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    tasks: Sequence[Mapping[str, Any]] = spec["tasks"]
    if not tasks:
        yield "spec.tasks: Invalid value: 0: spec.tasks in body should have at least 1 items"
    for index, task in enumerate(tasks):
        at = f"spec.tasks[{index}]"
        if not re.match(_TASK_NAME, task["name"]):
            yield f"{at}.name: Invalid value: {json.dumps(task['name'])}: {at}.name in body should match '{_TASK_NAME}'"
        for field in ("replicas", "minAvailable", "maxRetry"):
            yield from _negative(f"{at}.{field}", task.get(field))
        yield from _unknown_events(f"{at}.policies", task.get("policies") or ())
    for field in ("minAvailable", "maxRetry", "ttlSecondsAfterFinished"):
        yield from _negative(f"spec.{field}", spec.get(field))
    yield from _unknown_events("spec.policies", spec.get("policies") or ())
    if len(spec["queue"]) > _LONGEST_QUEUE:
        yield f"spec.queue: Too long: may not be more than {_LONGEST_QUEUE} bytes"


def _negative(at: str, value: int | None) -> Iterator[str]:
    if value is not None and value < 0:
        yield f"{at}: Invalid value: {value}: {at} in body should be greater than or equal to 0"


def _unknown_events(at: str, policies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    supported = ", ".join(f'"{event}"' for event in _SCHEMA_EVENTS)
    for index, policy in enumerate(policies):
        if policy.get("event") and policy["event"] not in _SCHEMA_EVENTS:
            yield f'{at}[{index}].event: Unsupported value: "{policy["event"]}": supported values: {supported}'


def _create_problems(job: Manifest, objects: Objects) -> Iterator[str]:
    """validateJobCreate: its sentences, in its order."""
    spec, name = job["spec"], key_of(job)[1]
    seen: set[str] = set()
    for index, task in enumerate(spec["tasks"]):
        if task["minAvailable"] > task["replicas"]:
            yield f" 'minAvailable' is greater than 'replicas' in task: {task['name']}, job: {name};"
        if task["name"] in seen:
            yield f" duplicated task name {task['name']};"
            break
        seen.add(task["name"])
        yield from _policy_problems(task.get("policies") or ())
        pod = f"{name}-{task['name']}-{index}"
        if len(pod) > _LONGEST_NAME:
            yield f"create pod with name {pod} validate failed [name part must be no more than {_LONGEST_NAME} bytes];"
        if not (task.get("template") or {}).get("spec", {}).get("containers"):
            yield f"spec.task[{index}].template.spec.containers: Required value. "
    if len(name) > _LONGEST_NAME:
        yield f"create job with name {name} validate failed [name part must be no more than {_LONGEST_NAME} bytes]"
    if sum(task["replicas"] for task in spec["tasks"]) < spec["minAvailable"]:
        yield " job 'minAvailable' should not be greater than total replicas in tasks;"
    yield from _policy_problems(spec.get("policies") or ())
    for plugin in spec.get("plugins") or ():
        if plugin not in _PLUGINS:
            yield f" unable to find job plugin: {plugin};"
    yield from _queue_problems(spec["queue"], objects)


def _queue_problems(name: str, objects: Objects) -> Iterator[str]:
    queues = objects.get("Queue", {})
    queue = queues.get(("", name))
    if queue is None:
        yield f' unable to find job queue: queue.scheduling.volcano.sh "{name}" not found;'
        return
    state = status_of(queue).get("state", "")
    if state != "Open":
        yield f" can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"
    children = sum(each["spec"].get("parent") == name for each in queues.values())
    if name == "root":
        yield " can not submit job to root queue;"
    elif children:
        yield f" can only submit job to leaf queue, queue `{name}` has {children} child queues;"


def _policy_problems(policies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """validatePolicies: the first fault of a list, and the lone `*`."""
    errors = list(_policy_faults(policies))
    if errors:
        plural = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        listed = "".join(f"\t* {error}\n" for error in errors)
        yield (
            f"{plural} occurred:\n{listed}\n"
            f" valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}];"
        )


def _policy_faults(policies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    events: set[str] = set()
    codes: set[int] = set()
    for policy in policies:
        fault = next(_faults_of(policy, events, codes), "")
        if fault:
            yield fault
            break
    if "*" in events and len(events) > 1:
        yield "if there's * here, no other policy should be here"


def _faults_of(policy: Mapping[str, Any], events: set[str], codes: set[int]) -> Iterator[str]:
    """What is wrong with a policy after those whose events and exit codes have been seen; adds its own to them."""
    named = [*(policy.get("events") or ()), *([policy["event"]] if policy.get("event") else ())]
    code, action = policy.get("exitCode"), policy.get("action", "")
    if named and code is not None:
        yield "must not specify event and exitCode simultaneously"
    if not named and code is None:
        yield "either event and exitCode should be specified"
    if action not in ACTIONS:
        yield f'spec.policies: Invalid value: "{action}": invalid policy action'
    for event in dict.fromkeys(named):
        if event not in EVENTS:
            yield f'spec.policies: Invalid value: "{event}": invalid policy event'
        if event in events:
            yield f"duplicate event {event}  across different policy"
        events.add(event)
    if code == 0:
        yield "0 is not a valid error code"
    if code in codes:
        yield f"duplicate exitCode {code}"
    if code is not None:
        codes.add(code)
