# SPDX-License-Identifier: Apache-2.0
"""A plain Volcano Job (batch.volcano.sh/v1alpha1) to a TrainingJob.

Source: volcano-sh/volcano (v1.15), staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go; the plugins:
pkg/controllers/job/plugins. The plugin that makes the pods find each other decides about the framework.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas.wire import in_order
from kfp_volcano.volcano.manifests.convert import mpi, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.job_policies import read_policies
from kfp_volcano.volcano.manifests.convert.kubeflow import gang, read_limits
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.plugins import FRAMEWORKS, read_plugins
from kfp_volcano.volcano.manifests.convert.pod import read_numa, read_scheduler, read_template
from kfp_volcano.volcano.manifests.convert.program import texts
from kfp_volcano.volcano.manifests.convert.source import refuse
from kfp_volcano.volcano.manifests.convert.task_names import call, find_hosts, rename
from kfp_volcano.volcano.manifests.convert.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.metadata import Metadata
    from kfp_volcano.volcano.manifests.convert.plugins import Plugin
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["convert", "convert_spec"]

_TASKS = {
    "pytorch": {"master": "master", "worker": "worker"},
    "tensorflow": {"chief": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"},
    "mpi": {"master": "launcher", "worker": "worker"},
    "ray": {"head": "head", "worker": "worker"},
}
"""Plugin to what it calls tasks, by default, and the role of each."""
_MPIRUN = re.compile(r"\b(?:mpirun|mpiexec|horovodrun)\b")
_SSH = re.compile(r"\bsshd?\b")


def convert(document: View) -> Job:
    """The TrainingJob of a Volcano Job. Raises SpecError where it cannot be said."""
    return convert_spec(document.map("spec"), read_metadata(document))


def convert_spec(spec: View, metadata: Metadata) -> Job:
    """The TrainingJob of a JobSpec, which other kinds have too. Raises SpecError where it cannot be said."""
    account = spec.account
    plugins = read_plugins(spec.map("plugins"))
    plugin = next((name for name in FRAMEWORKS if name in plugins), "")
    tasks = _tasks(spec, plugins, plugin)
    by_task = {draft.name: draft for draft in tasks}
    drafts = list(tasks)
    if "ssh" in plugins and plugin != "mpi":
        plugin = _keys(plugins["ssh"], drafts, account) or plugin
    find_hosts(drafts, [_name(task, index) for index, task in enumerate(spec.maps("tasks"))], metadata.name, account)
    rename(spec, drafts, account)
    for draft in drafts:
        if parents := draft.parts.get("dependsOn"):
            names_of = {name: known.name for name, known in by_task.items()}
            draft.parts["dependsOn"] = [names_of.get(name, name) for name in parents]
    job = new_job(metadata, plugin if plugin in ("tensorflow", "mpi", "ray") else "custom", drafts)
    job.queue = spec.text("queue", to="spec.queue") or job.queue
    _framework(job, plugin, plugins, spec)
    for each in plugins.values():
        each.settle()
    if "env" in plugins:
        for draft in job.drafts:
            ranks.tell(draft, {"VC_TASK_INDEX": ranks.INDEX, "VK_TASK_INDEX": ranks.INDEX}, account)
    _read_volumes(spec, job)
    job.priority = spec.text("priorityClassName", to="spec.priority")
    read_scheduler(spec)
    job.topology = read_topology(spec.map("networkTopology"))
    _minima(spec, job)
    read_policies(spec, list(zip(spec.maps("tasks"), tasks, strict=True)), job)
    if job.framework == "custom" and not any(draft.parts.get("success") for draft in job.drafts):
        by_name = {draft.name: draft for draft in job.drafts}
        by_name[in_order(by_name)[0]].parts["success"] = False  # Volcano's own rule: when all pods have finished
    read_limits(spec, job)
    spec.lost("minSuccess", "the job has succeeded when all pods of the deciding role have")
    spec.lost("runningEstimate", "nothing reads it")
    return job


def _tasks(spec: View, plugins: Mapping[str, Plugin], plugin: str) -> list[Draft]:
    """The tasks of the Job as roles, called as its plugin's arguments say."""
    roles, containers = _roles(plugins.get(plugin)), _containers(plugins.get("ray"))
    drafts = [_draft(task, index, roles, containers) for index, task in enumerate(spec.maps("tasks"))]
    if len({draft.name for draft in drafts}) < len(drafts):
        refuse(spec.at("tasks"), "two tasks have one name", "a name for each")
    if not drafts:
        refuse(spec.at("tasks"), "is missing: a Job has tasks")
    return drafts


def _keys(plugin: Plugin, drafts: Sequence[Draft], account: Account) -> str | None:
    """The plugin ssh by itself: the tasks become launcher and workers of MPI where they are, and are called so.

    Keys for anything else have no counterpart: that is refused where a program is seen to use ssh.
    """
    started = [draft for draft in drafts if any(_MPIRUN.search(text) for text in texts(draft))]
    served = [draft for draft in drafts if any(_SSH.search(text) for text in texts(draft)) and draft not in started]
    if len(started) == len(served) == 1 and len(drafts) == 2 and started[0].replicas == 1:  # noqa: PLR2004  # a pair
        for draft, role in ((started[0], "launcher"), (served[0], "worker")):
            call(draft, role, drafts, account)
        why = "the tasks are launcher and worker of MPI: the hosts of the workers are in /etc/volcano/core.host"
        account.changed(plugin.path, "spec.framework", why)
        return "mpi"
    if started or served:
        refuse(
            plugin.path,
            "makes keys for all pods; of a TrainingJob's frameworks, only mpi has them",
            "one task of one pod that starts mpirun, and one of workers that run sshd",
        )
    account.lost(plugin.path, "the pods get no keys; no program was seen to use ssh", "framework mpi has keys")
    return None


def _roles(plugin: Plugin | None) -> dict[str, str]:
    """Task to role, with the names that the plugin's arguments give its tasks."""
    if plugin is None:
        return {}
    return {plugin.text(kind) or kind: role for kind, role in _TASKS.get(plugin.name, {}).items()}


def _containers(ray: Plugin | None) -> tuple[str, ...]:
    """What Ray's plugin calls the containers that it starts Ray in."""
    if ray is None:
        return ()
    return tuple(ray.text(f"{kind}Container") or kind for kind in ("head", "worker"))


def _name(task: View, index: int) -> str:
    """The task's name, or the one that Volcano gives it (`DefaultTaskSpec`, pkg/webhooks/admission/jobs/mutate)."""
    return str(task.peek("name") or f"default{index}")


def _draft(task: View, index: int, roles: dict[str, str], containers: Sequence[str]) -> Draft:
    name = _name(task, index)
    draft = read_template(task.map("template"), roles.get(name, name), main=(*containers, name))
    task.changed("name", draft.place(), f"is the role {draft.name} now") if draft.name != name else task.text(
        "name", to=draft.place()
    )
    replicas = task.number("replicas", to=draft.place("replicas"))
    if not replicas:
        refuse(task.at("replicas"), "there are none of them", "leave the task out")
    draft.replicas = replicas
    least = task.number("minAvailable")
    if least is not None and 0 < least <= replicas:
        task.any("minAvailable", to=draft.place("min"))
        draft.min = least if least < replicas else None
    elif least is not None:
        draft.min = 1 if least <= 0 else None
        bounds = f"from 1, for each role has a pod in the gang, to {replicas}, all pods"
        task.changed("minAvailable", draft.place("min"), f"is {min(max(least, 1), replicas)} now: {bounds}")
    pod = task.map("template").map("spec")
    draft.restart = pod.text("restartPolicy") or "Always"
    draft.restart_path = pod.at("restartPolicy")
    depends = task.map("dependsOn")
    if parents := depends.texts("name", to=draft.place("dependsOn")):
        draft.parts["dependsOn"] = [roles.get(parent, parent) for parent in parents]
    if depends.peek("iteration") == "any" and len(parents) > 1:
        depends.changed("iteration", draft.place("dependsOn"), "waits for all of them, not for any")
    depends.any("iteration", to=draft.place("dependsOn"))
    if policy := task.text("topologyPolicy"):
        read_numa(draft, policy, task.at("topologyPolicy"), task.account)
    task.lost("partitionPolicy", "groups of pods within a task have no counterpart", "placement.topology for all pods")
    return draft


def _framework(job: Job, plugin: str, plugins: Mapping[str, Plugin], spec: View) -> None:
    account, tasks = spec.account, spec.at("tasks")
    by_name = {draft.name: draft for draft in job.drafts}
    if plugin == "pytorch":
        _pytorch(job, plugins[plugin].port("port", 23456), spec)
    elif plugin == "mpi":
        if not {"launcher", "worker"} <= by_name.keys():
            refuse(tasks, "the plugin mpi needs a master and workers", "tasks called as its arguments say")
        mpi.settle_launcher(by_name["launcher"], spec, account)
        mpi.settle_worker(by_name["worker"], spec, account)
        if plugin in plugins and "ssh" in plugins:
            account.kept(plugins["ssh"].path, "spec.mpi.sshPath")
        given = plugins["ssh"].text("ssh-key-file-path") if "ssh" in plugins else None
        job.mpi["sshPath"] = given or "/root/.ssh"
    elif plugin == "ray" and "head" in by_name and "command" not in by_name["head"].parts:
        refuse(
            tasks,
            "the head has no command: a TrainingJob runs the driver there, it takes no jobs from elsewhere",
            "command: [python, driver.py] on the head",
        )


def _pytorch(job: Job, port: int, spec: View) -> None:
    """The variables of the plugin (pkg/controllers/job/plugins/distributed-framework/pytorch/pytorch.go)."""
    trained = [draft for draft in job.drafts if draft.name in ("master", "worker")]
    others = [draft for draft in job.drafts if draft not in trained]
    trained.sort(key=lambda draft: draft.name)
    variables = {"MASTER_ADDR": ranks.LEADER, "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks.size(trained))}
    for draft in trained:
        ranks.tell(draft, variables, spec.account)
    if trained:
        merged = ranks.ranked(trained, ("RANK",), spec, spec.account)
        job.drafts = [*merged, *others]


def _read_volumes(spec: View, job: Job) -> None:
    for index, volume in enumerate(spec.maps("volumes")):
        name = f"volume-{index}"
        if "volumeClaim" in volume:
            refuse(
                volume.at("volumeClaim"),
                "makes a PersistentVolumeClaim with the Job; a TrainingJob uses those that there are",
                "create the claim, and name it: volumeClaimName",
            )
        place = f"spec.volumes.{name}"
        entry = {"claim": volume.text("volumeClaimName", to=place), "mount": volume.text("mountPath", to=place)}
        for draft in job.drafts:
            draft.parts.setdefault("volumes", {})[name] = dict(entry)


def _minima(spec: View, job: Job) -> None:
    """The gang: the minima of the tasks, and of the Job; those that wait for others are not counted."""
    drafts = [draft for draft in job.drafts if "dependsOn" not in draft.parts]
    if any(draft.min is not None for draft in drafts):
        least, place = spec.number("minAvailable"), "spec.minPods"
        floor, total = sum(draft.min or ranks.size([draft]) for draft in drafts), ranks.size(drafts)
        if least is not None:
            job.min_pods = max(floor, min(least, total))
            if job.min_pods == least:
                spec.any("minAvailable", to=place)
            else:
                bounds = f"from {floor}, the minima of the roles, to {total}, all pods"
                spec.changed("minAvailable", place, f"is {job.min_pods} now: {bounds}")
    else:
        gang(job, drafts, spec, "minAvailable")
