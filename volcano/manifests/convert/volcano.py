"""A plain Volcano Job (batch.volcano.sh/v1alpha1) to a TrainingJob.

Source: volcano-sh/volcano (v1.15), staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go; the plugins:
pkg/controllers/job/plugins. The plugin that makes the pods find each other decides about the framework.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.wire import in_order
from kfp_volcano.volcano.manifests.convert import mpi, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.job_policies import read_policies
from kfp_volcano.volcano.manifests.convert.kubeflow import gang, read_limits
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.pod import read_scheduler, read_template
from kfp_volcano.volcano.manifests.convert.program import rewrite, texts
from kfp_volcano.volcano.manifests.convert.source import refuse
from kfp_volcano.volcano.manifests.convert.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["convert"]

_FRAMEWORKS = {"pytorch": "custom", "tensorflow": "tensorflow", "mpi": "mpi", "ray": "ray"}
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
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    plugins = spec.map("plugins")
    arguments = {name: plugins.texts(name, to="spec.framework") for name in plugins}
    plugin = next((name for name in _TASKS if name in arguments), "")
    roles = _roles(plugin, arguments.get(plugin, []))
    tasks = [_draft(task, index, roles) for index, task in enumerate(spec.maps("tasks"))]
    by_task = {draft.name: draft for draft in tasks}
    drafts = list(tasks)
    if len(by_task) < len(tasks):
        refuse(spec.at("tasks"), "two tasks have one name", "a name for each")
    if not drafts:
        refuse(spec.at("tasks"), "is missing: a Job has tasks")
    if "ssh" in arguments and plugin != "mpi":
        plugin = _keys(plugins, drafts) or plugin
    plugins.lost("hcclrank", "the annotation hccl/rankIndex is not set", "ranks from KFP_VOLCANO_TASK_INDEX")
    _rename(spec, drafts, account)
    for draft in drafts:
        if parents := draft.parts.get("dependsOn"):
            names_of = {name: known.name for name, known in by_task.items()}
            draft.parts["dependsOn"] = [names_of.get(name, name) for name in parents]
    job = new_job(metadata, _FRAMEWORKS.get(plugin, "custom"), drafts)
    job.queue = spec.text("queue", to="spec.queue") or job.queue
    _framework(job, plugin, arguments.get(plugin, []), spec)
    if "env" in arguments:
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


def _keys(plugins: View, drafts: Sequence[Draft]) -> str | None:
    """The plugin ssh by itself: the tasks become launcher and workers of MPI where they are, and are called so.

    Keys for anything else have no counterpart: that is refused where a program is seen to use ssh.
    """
    account = plugins.account
    started = [draft for draft in drafts if any(_MPIRUN.search(text) for text in texts(draft))]
    served = [draft for draft in drafts if any(_SSH.search(text) for text in texts(draft)) and draft not in started]
    if len(started) == len(served) == 1 and len(drafts) == 2 and started[0].replicas == 1:  # noqa: PLR2004  # a pair
        for draft, role in ((started[0], "launcher"), (served[0], "worker")):
            _call(draft, role, names.CORE if role == "worker" else role, drafts)
        why = "the tasks are launcher and worker of MPI: the hosts of the workers are in /etc/volcano/core.host"
        account.changed(plugins.at("ssh"), "spec.framework", why)
        return "mpi"
    if started or served:
        refuse(
            plugins.at("ssh"),
            "makes keys for all pods; of a TrainingJob's frameworks, only mpi has them",
            "one task of one pod that starts mpirun, and one of workers that run sshd",
        )
    account.lost(plugins.at("ssh"), "the pods get no keys; no program was seen to use ssh", "framework mpi has keys")
    return None


def _call(draft: Draft, role: str, task: str, drafts: Sequence[Draft]) -> None:
    """Give a role its name, and change what refers to its task by Volcano's names for it."""
    variable = f"VC_{draft.name.upper().replace('-', '_')}_"
    file = f"/etc/volcano/{draft.name}.host"
    new = {variable: f"VC_{task.upper()}_", file: f"/etc/volcano/{task}.host"}
    pattern = re.compile("|".join(map(re.escape, new)))
    for other in drafts:
        rewrite(other, lambda text: pattern.sub(lambda found: new[found[0]], text))
    draft.name = role


def _roles(plugin: str, arguments: Sequence[str]) -> dict[str, str]:
    """Task to role, with the names that the plugin's arguments give its tasks."""
    roles = {}
    for kind, role in _TASKS.get(plugin, {}).items():
        roles[_argument(arguments, kind) or kind] = role
    return roles


def _argument(arguments: Sequence[str], name: str) -> str | None:
    """The value of `--name=value`, or of `--name value`."""
    for index, argument in enumerate(arguments):
        key, equals, value = argument.lstrip("-").partition("=")
        if key == name:
            return value if equals else next(iter(arguments[index + 1 : index + 2]), None)
    return None


def _draft(task: View, index: int, roles: dict[str, str]) -> Draft:
    name = task.peek("name") or f"default{index}"
    draft = read_template(task.map("template"), roles.get(str(name), str(name)), main=(str(name),))
    task.changed("name", draft.place(), f"is the role {draft.name} now") if draft.name != name else task.text(
        "name", to=draft.place()
    )
    replicas = task.number("replicas", to=draft.place("replicas"))
    if not replicas:
        refuse(task.at("replicas"), "there are none of them", "leave the task out")
    draft.replicas = replicas
    least = task.number("minAvailable", to=draft.place("min"))
    if least is not None and 0 < least < replicas:
        draft.min = least
    elif least == 0:
        draft.min = 1
        task.account.changed(task.at("minAvailable"), draft.place("min"), "is 1: each role has a pod in the gang")
    pod = task.map("template").map("spec")
    draft.restart = pod.text("restartPolicy") or "Always"
    draft.restart_path = pod.at("restartPolicy")
    depends = task.map("dependsOn")
    if parents := depends.texts("name", to=draft.place("dependsOn")):
        draft.parts["dependsOn"] = [roles.get(parent, parent) for parent in parents]
    if depends.peek("iteration") == "any" and len(parents) > 1:
        depends.changed("iteration", draft.place("dependsOn"), "waits for all of them, not for any")
    depends.any("iteration", to=draft.place("dependsOn"))
    _numa(task, draft)
    task.lost("partitionPolicy", "groups of pods within a task have no counterpart", "placement.topology for all pods")
    return draft


def _numa(task: View, draft: Draft) -> None:
    policy = task.text("topologyPolicy")
    resources = draft.parts["resources"]
    if policy in (None, "none"):
        task.account.kept(task.at("topologyPolicy"), draft.place("placement", "numa")) if policy else None
    elif resources.get("reserved") and quantity(resources.get("cpu", "0")) % 1 == 0:
        draft.parts.setdefault("placement", {})["numa"] = policy
        task.account.kept(task.at("topologyPolicy"), draft.place("placement", "numa"))
    else:
        why = "the kubelet aligns only pods with whole CPUs whose limits are their requests: it has no effect here"
        task.lost("topologyPolicy", why, "equal limits and requests of cpu and memory, whole CPUs")


def _rename(spec: View, drafts: Sequence[Draft], account: Account) -> None:
    """Names that kfp-volcano's own tasks have, and what refers to the task that is called `core` now."""
    for draft in drafts:
        if draft.name in names.RESERVED_TASKS:
            account.changed(spec.at("tasks"), draft.place(), f"the name {draft.name} is taken: it is {draft.name}s now")
            draft.name = f"{draft.name}s"
    if not any(draft.name == "worker" for draft in drafts):
        return
    for draft in drafts:
        for key in rewrite(draft, _core):
            place = draft.place(*key.split(".", 1))
            account.changed(str(place), place, "the workers' task is called core: its hosts are in VC_CORE_HOSTS")


def _core(text: str) -> str:
    for old, new in (("VC_WORKER_", "VC_CORE_"), ("/etc/volcano/worker.host", "/etc/volcano/core.host")):
        text = text.replace(old, new)
    return text


def _framework(job: Job, plugin: str, arguments: Sequence[str], spec: View) -> None:
    account, tasks = spec.account, spec.at("tasks")
    by_name = {draft.name: draft for draft in job.drafts}
    if plugin == "pytorch":
        _pytorch(job, int(_argument(arguments, "port") or 23456), spec)
    elif plugin == "mpi":
        if not {"launcher", "worker"} <= by_name.keys():
            refuse(tasks, "the plugin mpi needs a master and workers", "tasks called as its arguments say")
        mpi.settle_launcher(by_name["launcher"], spec, account)
        mpi.settle_worker(by_name["worker"], spec, account)
        job.mpi["sshPath"] = "/root/.ssh"
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
        least = spec.number("minAvailable", to="spec.minPods")
        floor = sum(draft.min or ranks.size([draft]) for draft in drafts)
        if least is not None:
            job.min_pods = max(floor, min(least, ranks.size(drafts)))
    else:
        gang(job, drafts, spec, "minAvailable")
