# SPDX-License-Identifier: Apache-2.0
"""What Volcano's webhook refuses in a new Job that the CRD's schema lets pass.

Its sentences, in its order. Sources: pkg/webhooks/admission/jobs/validate/{admit_job.go,util.go}, Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import key_faults, subdomain_faults
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, status_of
from kfp_volcano.volcano.model.plugin_flags import flag
from kfp_volcano.volcano.model.policy_rules import policy_problem
from kfp_volcano.volcano.model.template_rules import template_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["partition_problems", "problems", "topology_problem"]

_PLUGINS = frozenset({"env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "hcclrank", "ray"})


def problems(job: Manifest, objects: Objects) -> Iterator[tuple[str, str]]:
    """The field and the webhook's sentence of each thing that it refuses."""
    spec, name = job["spec"], key_of(job)[1]
    if "tasks" not in spec:  # an empty list the schema refuses
        yield "spec.tasks", "No task specified in job spec"
        return
    if _lacks_master(spec):
        yield "spec.plugins.mpi", "The specified mpi master task was not found"
        return
    yield from _told("spec.networkTopology", topology_problem(spec.get("networkTopology")))
    seen: set[str] = set()
    replicas = 0
    for index, task in enumerate(spec["tasks"]):
        at = f"spec.tasks[{index}]"
        replicas += task["replicas"]
        if task["minAvailable"] > task["replicas"]:
            sentence = f" 'minAvailable' is greater than 'replicas' in task: {task['name']}, job: {name};"
            yield f"{at}.minAvailable", sentence
        if task["name"] in seen:
            yield f"{at}.name", f" duplicated task name {task['name']};"
            break
        seen.add(task["name"])
        yield from _told(f"{at}.policies", policy_problem(task.get("policies") or (), "spec.tasks.policies"))
        yield from _name_problems("pod", f"{name}-{task['name']}-{index}", f"{at}.name", ";")
        yield from template_problems(task, index)
        yield from ((f"{at}.{field}", sentence) for field, sentence in partition_problems(task, name))
    yield from _name_problems("job", name, "metadata.name", "")
    if replicas < spec["minAvailable"]:
        yield "spec.minAvailable", " job 'minAvailable' should not be greater than total replicas in tasks;"
    yield from _told("spec.policies", policy_problem(spec.get("policies") or (), "spec.policies"))
    for plugin in spec.get("plugins") or ():
        if plugin not in _PLUGINS:
            yield f"spec.plugins.{plugin}", f" unable to find job plugin: {plugin};"
    yield from _volume_problems(spec.get("volumes") or ())
    yield from _queue_problems(spec["queue"], objects)
    if any("dependsOn" in task for task in spec["tasks"]) and not _ordered(spec["tasks"]):
        yield "spec.tasks", " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"


def _told(at: str, sentence: str) -> Iterator[tuple[str, str]]:
    if sentence:
        yield at, sentence


def _name_problems(what: str, name: str, at: str, end: str) -> Iterator[tuple[str, str]]:
    faults = key_faults(name)
    if faults:
        yield at, f"create {what} with name {name} validate failed [{' '.join(faults)}]{end}"


def topology_problem(topology: Mapping[str, Any] | None) -> str:
    """validateNetworkTopology: the webhook's sentence on a topology that names its tier twice, or nothing."""
    twice = topology and topology.get("highestTierAllowed") is not None and topology.get("highestTierName")
    both = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
    return both if twice else ""


def partition_problems(task: Mapping[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """validatePartitionPolicy: the webhook's sentences on a task whose numbers and partitions differ, by field."""
    partitions = task.get("partitionPolicy")
    if not partitions:
        return
    size, least = partitions["partitionSize"], partitions.get("minPartitions", 0)
    where = f"in task: {task['name']}, job: {job}"
    if task["replicas"] != partitions["totalPartitions"] * size:
        yield "replicas", f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}"
    elif least > 0 and task.get("minAvailable", least * size) != least * size:
        yield "minAvailable", f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"
    yield from _told("partitionPolicy.networkTopology", topology_problem(partitions.get("networkTopology")))


def _lacks_master(spec: Mapping[str, Any]) -> bool:
    """Whether the plugin `mpi` asks for a task that the Job does not have."""
    arguments = (spec.get("plugins") or {}).get("mpi")
    if arguments is None:
        return False
    return flag(arguments, "master", "master") not in {task["name"] for task in spec["tasks"]}


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
        elif name and subdomain_faults(name):
            fault = f"invalid VolumeClaimName {name} : [{' '.join(subdomain_faults(name))}]"
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
    """topoSort: whether every task can start after those it depends on, none of them named twice."""
    waiting = {task["name"]: list((task.get("dependsOn") or {}).get("name") or ()) for task in tasks}
    if len(waiting) < len(tasks) or any(len(needed) > len(set(needed)) for needed in waiting.values()):
        return False
    while waiting:
        ready = [name for name, needed in waiting.items() if not needed]
        if not ready:
            return False
        waiting = {name: [each for each in needed if each not in ready] for name, needed in waiting.items() if needed}
    return True
