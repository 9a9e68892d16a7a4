# SPDX-License-Identifier: Apache-2.0
"""Admission of Jobs: the CRD, the mutating webhook's defaults, the validating webhook's rules.

Sources: pkg/webhooks/admission/jobs/{mutate/mutate_job.go,validate/admit_job.go}, Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import custom_resources, job_rules
from kfp_volcano.volcano.model.durations import parse_duration
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.volcano.model.objects import Manifest, Objects

__all__ = ["admit_create", "admit_update"]

_MUTATING = "mutatejob.volcano.sh"
_VALIDATING = "validatejob.volcano.sh"
_NEED_SVC = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
_DEFAULT_RETRIES = 3
_AMOUNTS = frozenset({"limits", "requests"})


def admit_create(job: Manifest, objects: Objects) -> Manifest:
    """The Job as it is stored. Raises InvalidError with the message of whoever refused it."""
    given = custom_resources.read(job, _MUTATING, changing=True, fills=("queue", ""))
    bad = _unreadable(given)
    if bad:
        raise _denied(_MUTATING, [bad])
    custom_resources.check_spec(given, "queue")
    defaulted = _with_defaults(given)
    custom_resources.check(defaulted)
    problems = list(job_rules.problems(defaulted, objects))
    if problems:
        raise _denied(_VALIDATING, problems)
    return defaulted


def admit_update(old: Manifest, new: Manifest) -> None:
    """Only minAvailable, tasks[*].replicas, tasks[*].minAvailable and priorityClassName may change."""
    settled = custom_resources.read(new, _VALIDATING, changing=False)
    custom_resources.check(settled)
    before, after = old["spec"], settled.get("spec") or {}
    tasks = after.get("tasks", ())
    for index, task in enumerate(tasks):
        if task.get("minAvailable", 0) > task.get("replicas", 0):
            name = task.get("name", "")
            raise _refused(f"spec.tasks[{index}]", f"'minAvailable' must be <= 'replicas' in task: {name}")
        disorder = list(job_rules.partition_problems(task, key_of(new)[1]))
        if disorder:
            raise _denied(_VALIDATING, [(f"spec.tasks[{index}].{field}", sentence) for field, sentence in disorder])
    if after.get("minAvailable", 0) > sum(task.get("replicas", 0) for task in tasks):
        raise _refused("spec.minAvailable", "job 'minAvailable' must not be greater than total replicas")
    twice = job_rules.topology_problem(after.get("networkTopology"))
    if twice:
        raise _refused("spec.networkTopology", twice)
    if len(before["tasks"]) != len(tasks):
        raise _refused("spec.tasks", "job updates may not add or remove tasks")
    if _fixed_part(before) != _fixed_part(after):
        raise _refused(
            "spec",
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec`"
            " and `PriorityClassName`",
        )


def _refused(field: str, sentence: str) -> InvalidError:
    return _denied(_VALIDATING, [(field, sentence)])


def _denied(webhook: str, problems: Sequence[tuple[str, str]]) -> InvalidError:
    sentences = "".join(sentence for _, sentence in problems).strip()
    return InvalidError(
        f'admission webhook "{webhook}" denied the request: {sentences}', fields=[field for field, _ in problems]
    )


def _fixed_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What no update may change, as Go reads it; the controller fills in the names of claims that it makes."""
    fixed = {name: value for name, value in spec.items() if name not in {"minAvailable", "priorityClassName", "tasks"}}
    fixed["tasks"] = [
        {name: value for name, value in task.items() if name not in {"replicas", "minAvailable"}}
        for task in spec["tasks"]
    ]
    fixed["volumes"] = [
        {**volume, "volumeClaimName": ""} if volume.get("volumeClaim") is not None else volume
        for volume in spec.get("volumes") or ()
    ]
    read: dict[str, Any] = _read(fixed)
    return read


def _read(value: Any, *, amounts: bool = False) -> Any:
    """A value as Go's types hold it: what is empty is not there, and an amount is a number however it is written."""
    if isinstance(value, dict):
        held = {name: _read(child, amounts=amounts or name in _AMOUNTS) for name, child in value.items()}
        return {name: child for name, child in held.items() if child not in (None, "", [])}
    if isinstance(value, list):
        return [_read(child, amounts=amounts) for child in value]
    return parse_quantity(value) if amounts and isinstance(value, str | int | float) else value


def _unreadable(job: Manifest) -> tuple[str, str] | None:
    """Decoding the object fails on a quantity or a duration that is none, before any rule is looked at."""
    spec = job.get("spec") or {}
    for at, policies in (("spec", spec.get("policies")), *_each_task(spec, "policies")):
        for number, policy in enumerate(policies or ()):
            problem = _problem_of(parse_duration, policy.get("timeout", "0"))
            if problem:
                return f"{at}.policies[{number}].timeout", problem
    for at, template in _each_task(spec, "template"):
        pod = (template or {}).get("spec") or {}
        for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
            stated = container.get("resources") or {}
            for name in ("requests", "limits"):
                for quantity in (stated.get(name) or {}).values():
                    problem = _problem_of(parse_quantity, quantity)
                    if problem:
                        return f"{at}.template.spec", problem
    return None


def _each_task(spec: Mapping[str, Any], field: str) -> list[tuple[str, Any]]:
    return [(f"spec.tasks[{index}]", task.get(field)) for index, task in enumerate(spec.get("tasks") or ())]


def _problem_of(parse: Callable[[Any], object], given: Any) -> str:
    try:
        parse(given)
    except ValueError as error:
        return str(error)
    return ""


def _with_defaults(job: Manifest) -> Manifest:
    """mutate_job.go: queue, scheduler, retries, task names, minimums, plugins that others need."""
    spec = dict(job["spec"])
    spec["queue"] = spec.get("queue") or "default"
    spec["schedulerName"] = spec.get("schedulerName") or "volcano"
    spec["maxRetry"] = spec.get("maxRetry") or _DEFAULT_RETRIES
    given = spec.get("tasks", [])
    tasks = [_task_with_defaults(task, index) for index, task in enumerate(given)]
    if "tasks" in spec:
        spec["tasks"] = [{"replicas": 0, **(task if tasks == given else _rewritten(task))} for task in tasks]
    spec["minAvailable"] = spec.get("minAvailable") or sum(task["minAvailable"] for task in tasks)
    plugins = spec.get("plugins") or {}
    if _NEED_SVC & plugins.keys():
        plugins = {"svc": [], **plugins}
    if "mpi" in plugins:
        plugins = {"ssh": [], **plugins}
    if plugins:
        spec["plugins"] = plugins
    metadata = {"namespace": "default", **job["metadata"]}
    return {**job, "metadata": metadata, "spec": spec}


def _task_with_defaults(given: Mapping[str, Any], index: int) -> dict[str, Any]:
    task = {**given, "name": given.get("name") or f"default{index}"}
    pod = (given.get("template") or {}).get("spec") or {}
    if pod.get("hostNetwork") and not pod.get("dnsPolicy"):
        task["template"] = {**given["template"], "spec": {**pod, "dnsPolicy": "ClusterFirstWithHostNet"}}
    task["maxRetry"] = given.get("maxRetry") or _DEFAULT_RETRIES
    partitions = given.get("partitionPolicy") or {}
    least = partitions.get("minPartitions", 0) * partitions.get("partitionSize", 0)
    task.setdefault("minAvailable", least or task.get("replicas", 0))
    return task


def _rewritten(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task as Go writes it, which the webhook does with all of them when it fills in something: all it must have."""
    template = task.get("template") or {}
    return {**task, "template": {**template, "spec": {"containers": None, **(template.get("spec") or {})}}}
