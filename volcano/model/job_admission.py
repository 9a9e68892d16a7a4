"""Admission of Jobs: the CRD, the mutating webhook's defaults, the validating webhook's rules.

Sources: pkg/webhooks/admission/jobs/{mutate/mutate_job.go,validate/admit_job.go}, Volcano 1.15.1.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import custom_resources, job_rules
from kfp_volcano.volcano.model.durations import parse_duration
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kfp_volcano.volcano.model.objects import Manifest, Objects

__all__ = ["admit_create", "admit_update"]

_MUTATING = "mutatejob.volcano.sh"
_VALIDATING = "validatejob.volcano.sh"
_NEED_SVC = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
_DEFAULT_RETRIES = 3
_AMOUNTS = frozenset({"limits", "requests"})


def admit_create(job: Manifest, objects: Objects) -> Manifest:
    """The Job as it is stored. Raises InvalidError with the message of whoever refused it."""
    given = custom_resources.read(job, _MUTATING, fills=("queue", ""))
    unreadable = next(_unreadable(given), None)
    if unreadable:
        raise _denied(_MUTATING, [unreadable])
    defaulted = _with_defaults(given)
    custom_resources.check(defaulted)
    problems = list(job_rules.problems(defaulted, objects))
    if problems:
        raise _denied(_VALIDATING, problems)
    return defaulted


def admit_update(old: Manifest, new: Manifest) -> None:
    """Only minAvailable, tasks[*].replicas, tasks[*].minAvailable and priorityClassName may change."""
    settled = custom_resources.read(new, _VALIDATING)
    custom_resources.check(settled)
    before, after = old["spec"], settled.get("spec") or {}
    tasks = after.get("tasks", ())
    for index, task in enumerate(tasks):
        if task.get("minAvailable", 0) > task.get("replicas", 0):
            name = task.get("name", "")
            raise _refused(f"spec.tasks[{index}]", f"'minAvailable' must be <= 'replicas' in task: {name}")
        for field, found in job_rules.partition_problems(task, new["metadata"]["name"]):
            raise _refused(f"spec.tasks[{index}].{field}", found)
    if after.get("minAvailable", 0) > sum(task.get("replicas", 0) for task in tasks):
        raise _refused("spec.minAvailable", "job 'minAvailable' must not be greater than total replicas")
    for found in job_rules.topology_problem(after.get("networkTopology")):
        raise _refused("spec.networkTopology", found)
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
    """All but what may change, as typed programs read it; the controller fills in the names of claims it makes."""
    fixed = {name: value for name, value in spec.items() if name not in {"minAvailable", "priorityClassName"}}
    fixed["tasks"] = [
        {name: value for name, value in task.items() if name not in {"replicas", "minAvailable"}}
        for task in spec["tasks"]
    ]
    fixed["volumes"] = [
        {name: value for name, value in volume.items() if name != "volumeClaimName" or "volumeClaim" not in volume}
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


def _unreadable(job: Manifest) -> Iterator[tuple[str, str]]:
    """Decoding the object fails on a quantity or a duration that is none, before any rule is looked at."""
    spec = job.get("spec") or {}
    durations = [("spec.runningEstimate", spec.get("runningEstimate")), *_timeouts(spec, "spec")]
    amounts: list[tuple[str, Any]] = []
    for index, task in enumerate(spec.get("tasks") or ()):
        durations += _timeouts(task, f"spec.tasks[{index}]")
        pod = (task.get("template") or {}).get("spec") or {}
        for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
            stated = container.get("resources") or {}
            for name in ("requests", "limits"):
                amounts += [(f"spec.tasks[{index}].template.spec", each) for each in (stated.get(name) or {}).values()]
    yield from ((at, fault) for at, text in durations if text is not None and (fault := _fault(parse_duration, text)))
    yield from ((at, fault) for at, amount in amounts if (fault := _fault(parse_quantity, amount)))


def _timeouts(holder: Mapping[str, Any], at: str) -> list[tuple[str, Any]]:
    policies = enumerate(holder.get("policies") or ())
    return [(f"{at}.policies[{index}].timeout", policy.get("timeout")) for index, policy in policies]


def _fault(parse: Callable[[Any], float], value: Any) -> str:
    try:
        parse(value)
    except ValueError as error:
        return f"time: invalid duration {json.dumps(value)}" if parse is parse_duration else str(error)
    return ""


def _with_defaults(job: Manifest) -> Manifest:
    """mutate_job.go: queue, scheduler, retries, task names, minimums, plugins that others need."""
    spec = dict(job.get("spec") or {})
    spec["queue"] = spec.get("queue") or "default"
    spec["schedulerName"] = spec.get("schedulerName") or "volcano"
    spec["maxRetry"] = spec.get("maxRetry") or _DEFAULT_RETRIES
    tasks = [_task_with_defaults(task, index) for index, task in enumerate(spec.get("tasks", ()))]
    if "tasks" in spec:
        spec["tasks"] = tasks
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
    task = {**given, "name": given.get("name") or f"default{index}", "replicas": given.get("replicas", 0)}
    task["maxRetry"] = given.get("maxRetry") or _DEFAULT_RETRIES
    partitions = given.get("partitionPolicy") or {}
    least = partitions.get("minPartitions", 0) * partitions.get("partitionSize", 0)
    task.setdefault("minAvailable", least or task["replicas"])
    return task
