# SPDX-License-Identifier: Apache-2.0
"""What would keep a valid Job from running on the embedded cluster, found before it is created."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.errors import InvalidError
from kfp_volcano.schemas.names import GPU, POOL_LABEL, VGPU_MEMORY, surplus_priority
from kfp_volcano.volcano.cluster.ssh_keys import KEYGEN
from kfp_volcano.volcano.manifests.frameworks import unwrapped
from kfp_volcano.volcano.manifests.priority import remedy
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, phase_of, status_of
from kfp_volcano.volcano.model.priorities import priority_class
from kfp_volcano.volcano.model.queues import ROOT, queue_tree
from kfp_volcano.volcano.model.resources import add, exceeded, format_quantity, pod_request, resources
from kfp_volcano.volcano.model.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.cluster.volumes import Volumes

__all__ = [
    "command_problems",
    "limit_problems",
    "plugin_problems",
    "priority_problems",
    "queue_problems",
    "size_problems",
    "usable_queues",
    "volume_problems",
]

Finding: TypeAlias = tuple[str, str, str]
"""Path in the Job, what is wrong, what to do."""


def queue_problems(job: Manifest, objects: Objects) -> Iterator[Finding]:
    """A queue that is not there, closed, or not for Jobs."""
    name = job["spec"].get("queue") or "default"
    queues, usable = _queues(objects), usable_queues(objects)
    remedy = f"use one of: {', '.join(usable) or '(none is open)'}"
    if name not in queues:
        yield "spec.queue", f"there is no queue {name!r}", remedy
    elif name in _parents(queues):
        yield "spec.queue", f"queue {name!r} has queues below it and takes no Jobs", remedy
    elif name not in usable:
        yield "spec.queue", f"queue {name!r} is {status_of(queues[name]).get('state')}", remedy


def usable_queues(objects: Objects) -> list[str]:
    """The queues that take Jobs: open, and with none below them."""
    queues = _queues(objects)
    parents = _parents(queues)
    return sorted(
        name for name, queue in queues.items() if name not in parents and status_of(queue).get("state") == "Open"
    )


def _queues(objects: Objects) -> dict[str, Manifest]:
    return {name: queue for (_, name), queue in objects.get("Queue", {}).items()}


def _parents(queues: Mapping[str, Manifest]) -> set[str]:
    return {str(queue["spec"].get("parent")) for queue in queues.values()} | {ROOT}


def priority_problems(job: Manifest, objects: Objects) -> Iterator[Finding]:
    """Priority classes that are not there: the Job's pair in one finding, then those of single tasks.

    The API server takes such a Job, but not its pods: Volcano tries for minutes and then terminates it.
    """
    stated = job["spec"].get("priorityClassName") or ""
    asked = {stated: "spec.priorityClassName"}
    for index, task in enumerate(job["spec"]["tasks"]):
        name = task["template"]["spec"].get("priorityClassName") or ""
        ours = name == surplus_priority(stated)
        asked.setdefault(name, asked[stated] if ours else f"spec.tasks[{index}].template.spec.priorityClassName")
    missing: dict[str, list[str]] = {}
    for name, path in asked.items():
        if priority_class(objects, name) is None:
            missing.setdefault(path, []).append(name)
    for path, those in missing.items():
        yield path, f"there is no PriorityClass {' and no '.join(those)}", remedy()


def limit_problems(job: Manifest, objects: Objects) -> Iterator[Finding]:
    """A gang that is larger than its queue may ever be."""
    share = queue_tree(objects).get(job["spec"].get("queue") or "default")
    if share is None:
        return
    needed, _ = _minimum(job["spec"])
    over = exceeded(needed, share.limit, needed)
    if over:
        amounts = ", ".join(f"{format_quantity(needed[name])} {name}" for name in over)
        most = ", ".join(f"{format_quantity(share.limit[name])} {name}" for name in over)
        yield (
            "spec.minAvailable",
            f"the gang needs {amounts}; queue {share.name!r} may use {most}",
            "ask for fewer workers",
        )


def size_problems(job: Manifest, objects: Objects) -> Iterator[Finding]:
    """A gang that would not fit if the cluster were empty: the scheduler's own model is asked.

    Nothing is known of a Job whose queue or priority class is missing.
    """
    if (job["spec"].get("queue") or "default") not in queue_tree(objects) or any(priority_problems(job, objects)):
        return
    over = list(limit_problems(job, objects))
    if over:
        yield from over
    elif not _starts_alone(job, objects):
        needed, pods = _minimum(job["spec"])
        kind = VGPU_MEMORY if VGPU_MEMORY in needed else GPU
        room = [resources(status_of(node).get("allocatable")).get(kind, 0) for node in objects.get("Node", {}).values()]
        nodes = ", ".join(
            f"{sum(1 for _ in group)} with {format_quantity(amount)} {kind}"
            for amount, group in itertools.groupby(sorted(room))
        )
        asked = format_quantity(needed.get(kind, 0))
        message = f"the gang of {pods} pods and {asked} {kind} does not fit, even with the cluster empty"
        yield "spec.minAvailable", message, f"ask for fewer workers or smaller ones; the nodes are: {nodes}"


def command_problems(job: Manifest, workdir: Path, path: str) -> Iterator[Finding]:
    """A program that is not there."""
    for at, container in _containers(job):
        words = unwrapped([*(container.get("command") or ()), *(container.get("args") or ())])
        if not words:
            yield f"{at}.command", "there is no command, and images are not run here", "write the command out"
            continue
        program = words[0]
        folder = workdir / (container.get("workingDir") or "")
        interpreted = program in {"python", "python3"}
        found = interpreted or (
            (folder / program).is_file() if "/" in program else shutil.which(program, path=path) is not None
        )
        if not found:
            where = f"in {folder}" if "/" in program else "on the PATH"
            yield f"{at}.command", f"there is no program {program!r} {where}", "install it, or correct the command"
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        if interpreted and words[1:2] == (script,) and script.endswith(".py") and not (folder / script).is_file():
            yield f"{at}.command", f"there is no file {script!r} in {folder}", "commands run in the spec file's folder"


def plugin_problems(job: Manifest, path: str) -> Iterator[Finding]:
    """A plugin that needs a program which is not there."""
    if "ssh" in (job["spec"].get("plugins") or {}) and shutil.which(KEYGEN, path=path) is None:
        yield "spec.plugins.ssh", f"there is no program {KEYGEN!r} on the PATH", "install OpenSSH's client and server"


def volume_problems(job: Manifest, volumes: Volumes) -> Iterator[Finding]:
    """A claim whose folder cannot be written."""
    namespace = job["metadata"].get("namespace") or "default"
    seen = set()
    for index, task in enumerate(job["spec"]["tasks"]):
        for number, volume in enumerate(task["template"]["spec"].get("volumes") or ()):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is None or claim in seen:
                continue
            seen.add(claim)
            reason = _not_writable(volumes, namespace, claim)
            if reason:
                at = f"spec.tasks[{index}].template.spec.volumes[{number}]"
                yield (
                    at,
                    f"the folder of volume {claim!r} cannot be written: {reason}",
                    "make it writable, or map another",
                )


def _not_writable(volumes: Volumes, namespace: str, claim: str) -> str:
    try:
        with tempfile.TemporaryFile(dir=volumes.claim(namespace, claim)):
            return ""
    except OSError as error:
        return str(error)


def _minimum(spec: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """What the tasks' minimums ask for, and how many pods they are."""
    total: dict[str, int] = {}
    pods = 0
    for task in spec["tasks"]:
        least = task.get("minAvailable", task["replicas"])
        total = add(total, pod_request(task["template"]["spec"]), times=least)
        pods += least
    return total, pods


def _starts_alone(job: Manifest, objects: Objects) -> bool:
    """Whether the gang gets its nodes in a copy of the cluster that runs nothing."""
    numbers = itertools.count()
    world = World(lambda: str(next(numbers)))
    for kind in ("Node", "Queue", "PriorityClass"):
        for manifest in objects.get(kind, {}).values():
            world.create(manifest, 0)
    try:
        created = world.create(_in_any_pool(job), 0)
    except InvalidError:  # whoever creates the Job will be told
        return True
    for _ in ("the gang is let in", "its pods get nodes", "its PodGroup runs"):
        run_controllers(world, 0)
        run_scheduler(world, 0)
    namespace, name = key_of(created)
    group = world.get("PodGroup", (namespace, f"{name}-{created['metadata']['uid']}"))
    return phase_of(group) == "Running"


def _in_any_pool(job: Manifest) -> Manifest:
    """The Job, whose pods may run in any pool of shared GPUs: a pool gets its nodes when pods wait for it."""
    tasks = []
    for task in job["spec"]["tasks"]:
        spec = task["template"]["spec"]
        selector = {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key != POOL_LABEL}
        tasks.append({**task, "template": {**task["template"], "spec": {**spec, "nodeSelector": selector}}})
    return {**job, "spec": {**job["spec"], "tasks": tasks}}


def _containers(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, task in enumerate(job["spec"]["tasks"]):
        spec = task["template"]["spec"]
        for field in ("initContainers", "containers"):
            for number, container in enumerate(spec.get(field) or ()):
                yield f"spec.tasks[{index}].template.spec.{field}[{number}]", container
