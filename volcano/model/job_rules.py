"""What Volcano's webhook refuses in a new Job that the CRD's schema lets pass.

Its sentences, in its order. Sources: pkg/webhooks/admission/jobs/validate/{admit_job.go,util.go}, Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import pod_template
from kfp_volcano.schemas.structure import deviations, load_schema
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.model.metadata import is_qualified_name, is_subdomain
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, status_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ACTIONS", "EVENTS", "partition_problems", "problems", "topology_problem"]

EVENTS = ("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated")
"""Events that a policy may name."""
ACTIONS = (
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob",
    "ResumeJob",
)  # fmt: skip
"""Actions that a policy may name."""

_PLUGINS = frozenset({"env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "hcclrank", "ray"})
_LONGEST_NAME = 63
_LOWER_CASE = "lower case alphanumeric characters, '-' or '.'"
_WHOLE_CPU = 1000


def problems(job: Manifest, objects: Objects) -> Iterator[tuple[str, str]]:
    """The field and the webhook's sentence of each thing that it refuses."""
    spec, name = job["spec"], key_of(job)[1]
    if "tasks" not in spec:  # an empty list the schema refuses
        yield "spec.tasks", "No task specified in job spec"
        return
    if "mpi" in (spec.get("plugins") or {}) and _mpi_master(spec["plugins"]) not in _names(spec["tasks"]):
        yield "spec.plugins.mpi", "The specified mpi master task was not found"
        return
    for found in topology_problem(spec.get("networkTopology")):
        yield "spec.networkTopology", found
    yield from _task_problems(spec["tasks"], name)
    yield from _name_problems("job", name, "metadata.name", "")
    if sum(task["replicas"] for task in spec["tasks"]) < spec["minAvailable"]:
        yield "spec.minAvailable", " job 'minAvailable' should not be greater than total replicas in tasks;"
    yield from _policy_problems(spec.get("policies") or (), "spec.policies", "spec.policies")
    for plugin in spec.get("plugins") or ():
        if plugin not in _PLUGINS:
            yield f"spec.plugins.{plugin}", f" unable to find job plugin: {plugin};"
    yield from _volume_problems(spec.get("volumes") or ())
    yield from _queue_problems(spec["queue"], objects)
    if any(task.get("dependsOn") is not None for task in spec["tasks"]) and not _ordered(spec["tasks"]):
        yield (
            "spec.tasks",
            " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
        )


def _task_problems(tasks: Sequence[Mapping[str, Any]], job: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        at, name = f"spec.tasks[{index}]", task["name"]
        if task["minAvailable"] > task["replicas"]:
            yield f"{at}.minAvailable", f" 'minAvailable' is greater than 'replicas' in task: {name}, job: {job};"
        if name in seen:
            yield f"{at}.name", f" duplicated task name {name};"
            return
        seen.add(name)
        yield from _policy_problems(task.get("policies") or (), f"{at}.policies", "spec.tasks.policies")
        yield from _name_problems("pod", f"{job}-{name}-{index}", f"{at}.name", ";")
        yield from _template_problems(task, index)
        for field, found in partition_problems(task, job):
            yield f"{at}.{field}", found


def _name_problems(what: str, name: str, at: str, end: str) -> Iterator[tuple[str, str]]:
    if len(name) > _LONGEST_NAME:
        faults = f"[name part must be no more than {_LONGEST_NAME} bytes]"
        yield at, f"create {what} with name {name} validate failed {faults}{end}"
    elif not is_qualified_name(name):
        yield (
            at,
            f"create {what} with name {name} validate failed [name part must consist of alphanumeric characters]{end}",
        )


def topology_problem(topology: Mapping[str, Any] | None) -> Iterator[str]:
    """What validateNetworkTopology says of the tier up to which pods may lie apart."""
    if topology and topology.get("highestTierAllowed") is not None and topology.get("highestTierName"):
        yield "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"


def partition_problems(task: Mapping[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """What validatePartitionPolicy says of a task's partitions, which the schema has found to be one at least."""
    partitions = task.get("partitionPolicy")
    if not partitions:
        return
    size, least = partitions["partitionSize"], partitions.get("minPartitions", 0)
    where = f"in task: {task.get('name', '')}, job: {job}"
    if task.get("replicas", 0) != partitions["totalPartitions"] * size:
        yield "replicas", f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}"
    elif least and task.get("minAvailable") is not None and task["minAvailable"] != least * size:
        yield "minAvailable", f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"
    for found in topology_problem(partitions.get("networkTopology")):
        yield "partitionPolicy.networkTopology", found


def _mpi_master(plugins: Mapping[str, Sequence[str] | None]) -> str:
    """The task whose pod runs mpirun: `--master` of the plugin's arguments, the last one counts."""
    master = "master"
    arguments = list(plugins["mpi"] or ())
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and flag == "master":
            master = value if equals else next(iter(arguments[index + 1 :]), "")
    return master


def _names(tasks: Sequence[Mapping[str, Any]]) -> set[str]:
    return {task["name"] for task in tasks}


def _template_problems(task: Mapping[str, Any], index: int) -> Iterator[tuple[str, str]]:
    """Kubernetes' validation of the pod template, and whole CPUs for a NUMA policy."""
    template = task.get("template") or {}
    at, found = f"spec.tasks[{index}]", [*_pod_problems(template)]
    if found:
        said = "".join(f"template.{path}: {words}. " for path, words in found)
        yield f"{at}.template.{found[0][0]}", f"spec.task[{index}].{said}"
    elif task.get("topologyPolicy", "none") != "none":
        pod = template["spec"]
        for number, container in enumerate((*pod["containers"], *(pod.get("initContainers") or ()))):
            stated = container.get("resources") or {}
            cpu = (stated.get("requests") or stated.get("limits") or {}).get("cpu", "0")
            if not parse_quantity(cpu) or parse_quantity(cpu) % _WHOLE_CPU:
                yield (
                    f"{at}.topologyPolicy",
                    f"the cpu request isn't  an integer in spec.task[{index}] container[{number}].",
                )
                return


def _pod_problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The field and the fault of what Kubernetes refuses, as far as this project knows its rules."""
    said = _said(template)
    schema = load_schema("pod-template.v1")
    wrong = [each for each in deviations(said, schema) if each.keyword != "additionalProperties"]
    for each in wrong:
        yield dotted(each.path), each.message
    if not said.get("spec", {}).get("containers"):
        yield "spec.containers", "Required value"
    elif not wrong:
        for finding in pod_template.faults(said):
            yield dotted(finding.path), finding.message


def _said(value: Any) -> Any:
    """A part of a template without what is empty: to Go that is as if it were not there."""
    if isinstance(value, dict):
        held = {name: _said(child) for name, child in value.items()}
        return {name: child for name, child in held.items() if child not in (None, "")}
    return [_said(child) for child in value] if isinstance(value, list) else value


def _volume_problems(volumes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """validateIO: the first fault only."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, path = f"spec.volumes[{index}]", volume["mountPath"]
        claim, name = volume.get("volumeClaim"), volume.get("volumeClaimName")
        fault = ""
        if path in seen:
            fault = f" duplicated mountPath: {path};"
        elif claim is None and not name:
            fault = " either VolumeClaim or VolumeClaimName must be specified;"
        elif claim is not None and name:
            fault = (
                "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
                "If you want to create a new PVC, you do not need to specify VolumeClaimName"
            )
        elif name and not is_subdomain(name):
            fault = f"invalid VolumeClaimName {name} : [a lowercase RFC 1123 subdomain must consist of {_LOWER_CASE}]"
        if fault:
            yield at, fault
            return
        seen.add(path)


def _queue_problems(name: str, objects: Objects) -> Iterator[tuple[str, str]]:
    queues, at = objects.get("Queue", {}), "spec.queue"
    queue = queues.get(("", name))
    if queue is None:
        yield at, f' unable to find job queue: queue.scheduling.volcano.sh "{name}" not found;'
        return
    state = status_of(queue).get("state", "")
    if state != "Open":
        yield at, f" can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"
    children = sum(each["spec"].get("parent") == name for each in queues.values())
    if name == "root":
        yield at, " can not submit job to root queue;"
    elif children:
        yield at, f" can only submit job to leaf queue, queue `{name}` has {children} child queues;"


def _ordered(tasks: Sequence[Mapping[str, Any]]) -> bool:
    """topoSort: whether every task can start after those it depends on, each of which it names once."""
    needs = {task["name"]: list((task.get("dependsOn") or {}).get("name") or ()) for task in tasks}
    if any(len(set(needed)) < len(needed) for needed in needs.values()):
        return False
    waiting = {name: set(needed) for name, needed in needs.items()}
    while waiting:
        ready = [name for name, needed in waiting.items() if not needed]
        if not ready:
            return False
        waiting = {name: needed.difference(ready) for name, needed in waiting.items() if needed}
    return True


def _policy_problems(policies: Sequence[Mapping[str, Any]], at: str, said: str) -> Iterator[tuple[str, str]]:
    """validatePolicies: the first fault of a list, and the lone `*`; `said` is the field as the webhook calls it."""
    errors = list(_policy_faults(policies, said))
    if errors:
        plural = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        listed = "".join(f"\t* {error}\n" for error in errors)
        valid = f" valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}];"
        yield at, f"{plural} occurred:\n{listed}\n{valid}"


def _policy_faults(policies: Sequence[Mapping[str, Any]], said: str) -> Iterator[str]:
    events: set[str] = set()
    codes: set[int] = set()
    for policy in policies:
        fault = next(_faults_of(policy, events, codes), "")
        if fault:
            yield fault.replace("spec.policies", said, 1)
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
    for event in dict.fromkeys(named):
        if event not in EVENTS:
            yield f'spec.policies: Invalid value: "{event}": invalid policy event'
        if action not in ACTIONS:
            yield f'spec.policies: Invalid value: "{action}": invalid policy action'
        if event in events:
            yield f"duplicate event {event}  across different policy"
        events.add(event)
    if code == 0:
        yield "0 is not a valid error code"
    if code in codes:
        yield f"duplicate exitCode {code}"
    if code is not None:
        codes.add(code)
