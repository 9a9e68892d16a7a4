# SPDX-License-Identifier: Apache-2.0
"""What the jobs of Kubeflow's training operator have in common: replica specs and a run policy.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/common_types.go and *_defaults.go;
kubeflow/mpi-operator (v0.8), pkg/apis/kubeflow/v2beta1/types.go, which has the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.schemas.quantities import duration_text
from kfp_volcano.volcano.manifests.convert.draft import CONTAINER
from kfp_volcano.volcano.manifests.convert.pod import read_template
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = [
    "BACKOFF",
    "apply_run_policy",
    "gang",
    "read_clean_up",
    "read_limits",
    "read_owner",
    "read_replicas",
    "restarts",
    "take_port",
]

BACKOFF = 6
"""Restarts of a Kubernetes Job (batch/v1) that names no limit."""
_MOST_RETRIES = 1000
_OPERATORS = ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator", "trainer.kubeflow.org/trainjob-controller")
_RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")


def read_replicas(
    specs: View, roles: Mapping[str, str], *, main: Sequence[str] = (), restart: str = "Never", default: int = 1
) -> list[Draft]:
    """The roles of a mapping of replica specs: `roles` gives the role of each type of replica, in any spelling.

    `restart` and `default` are the policy and the number of pods that the operator takes where none is said. Replicas
    of which there are none are no role. Raises SpecError for a type that is not among `roles`.
    """
    known = {kind.lower(): kind for kind in roles}
    drafts = []
    for key in specs:
        kind = known.get(key.lower())
        if kind is None:
            if isinstance(specs.peek(key), dict) and "template" in specs.peek(key):
                refuse(specs.at(key), "is no type of replica of this job", f"one of {', '.join(roles)}")
            continue
        if key not in specs:
            continue
        spec = specs.map(key)
        asked = spec.number("replicas")
        count = default if asked is None else asked
        if count == 0:
            specs.lost(key, "there are none of them: no role is made")
            continue
        draft = read_template(spec.map("template"), roles[kind], main=main)
        draft.replicas = count
        spec.account.kept(spec.at("replicas"), draft.place("replicas"))
        draft.restart = spec.text("restartPolicy") or restart
        draft.restart_path = spec.at("restartPolicy")
        if draft.restart not in _RESTARTS:
            refuse(draft.restart_path, f"there is no {draft.restart}", f"one of {', '.join(_RESTARTS)}")
        pod = spec.map("template").map("spec")
        pod.changed("restartPolicy", "spec.faults.failed", "what the replica spec says counts, as in the operator")
        drafts.append(draft)
    drafts.sort(key=lambda draft: list(roles.values()).index(draft.name))
    if not drafts:
        refuse(specs.at(), "there are no replicas in it", f"with the types {', '.join(roles)}")
    return drafts


def take_port(drafts: Sequence[Draft], name: str, default: int, account: Account) -> int:
    """The port of that name in the training containers, taken from their pods.

    It does nothing by itself: Kubernetes opens no ports by listing them.
    """
    port = default
    for draft in drafts:
        container = draft.patch.value.get("spec", {}).get("containers", {}).get("*", {})
        ports = container.get("ports")
        if not isinstance(ports, list):
            continue
        ours = [each for each in ports if isinstance(each, dict) and each.get("name") == name]
        if ours and isinstance(ours[0].get("containerPort"), int):
            port = ours[0]["containerPort"]
            container["ports"] = [each for each in ports if each not in ours]
            account.changed(f"{draft.container}.ports", "", f"the port {name} need not be listed")
            if not container["ports"]:
                draft.patch.drop((*CONTAINER, "ports"))
    return port


def apply_run_policy(policy: View, job: Job, *, backoff: int | None = None) -> None:
    """Read a RunPolicy into a job whose roles are known; `backoff` is the operator's own limit of restarts, if any."""
    read_owner(policy)
    read_clean_up(policy)
    read_limits(policy, job)
    limit = policy.number("backoffLimit")
    restarts(job, policy.account, backoff if limit is None else limit, policy.at("backoffLimit"))
    scheduling = policy.map("schedulingPolicy")
    if queue := scheduling.text("queue", to="spec.queue"):
        job.queue = queue
    job.priority = scheduling.text("priorityClass", to="spec.priority") or job.priority
    gang(job, job.drafts, scheduling, "minAvailable")
    scheduling.lost("minResources", "Volcano adds up what the gang requests", "say in each role what a pod needs")
    scheduling.lost(
        "scheduleTimeoutSeconds",
        "Volcano's gangs wait until there is room",
        "spec.faults.pending ends a Job that waits too long",
    )


def read_owner(policy: View) -> None:
    """Read `suspend` and `managedBy`."""
    if policy.flag("suspend"):
        policy.lost("suspend", "a TrainingJob starts when it is submitted", "submit it when it shall run")
    manager = policy.text("managedBy")
    if manager in _OPERATORS:
        policy.account.kept(policy.at("managedBy"), "kind")
    elif manager:
        policy.lost("managedBy", "Kueue does not dispatch Volcano Jobs")


def read_clean_up(policy: View) -> None:
    """Read `cleanPodPolicy`: what becomes of pods when the job has finished."""
    clean = policy.text("cleanPodPolicy")
    if clean == "Running":
        policy.account.kept(policy.at("cleanPodPolicy"), "spec.faults.keepFor")
    elif clean == "All":
        why = "finished pods stay, with their logs, until the Job is removed"
        policy.changed("cleanPodPolicy", "spec.faults.keepFor", why, "a shorter spec.faults.keepFor")
    else:
        policy.lost("cleanPodPolicy", "Volcano deletes the pods that still run when the Job ends")


def read_limits(policy: View, job: Job) -> None:
    """Read how long the job may take, and how long it stays when it has finished: for ever where nothing is said."""
    seconds = policy.number("ttlSecondsAfterFinished", to="spec.faults.keepFor")
    job.faults["keepFor"] = "forever" if seconds is None else duration_text(seconds)
    deadline = policy.number("activeDeadlineSeconds", to="spec.faults.timeout")
    if deadline is not None:
        job.faults["timeout"] = duration_text(deadline)


def restarts(job: Job, account: Account, limit: int | None, limit_path: str) -> None:
    """What a failed program leads to, by the restart policies of the roles and the limit of restarts (None: none)."""
    # An MPI worker's sshd does not end: what its launcher's end leads to is what counts.
    origins = [origin for draft in job.drafts for origin in draft.origins]
    deciding = [draft for draft in origins if draft.name == "launcher"] or origins
    path = "spec.faults.failed"
    if {draft.restart for draft in deciding} == {"Never"} or limit == 0:
        failed = "fail"
        if limit is not None:
            account.changed(limit_path, path, "nothing is tried again")
    else:
        failed = "retry"
        _limit(job, account, limit, limit_path)
    job.faults["failed"] = failed
    for draft in origins:
        if draft.restart == "ExitCode":
            account.changed(
                draft.restart_path,
                path,
                f"what follows does not depend on the exit code: {failed}, also after codes below 128",
                "faults.failed: fail where trying again cannot help",
            )
        elif (draft.restart == "Never") == (failed == "fail"):
            account.kept(draft.restart_path, path)
        else:
            account.changed(draft.restart_path, path, f"one rule holds for all roles: {failed}")


def _limit(job: Job, account: Account, limit: int | None, path: str) -> None:
    if "retries" in job.faults:
        if limit is not None:
            account.changed(path, "spec.faults.retries", "elasticPolicy.maxRestarts counts, for each worker's program")
        return
    if limit is None:
        account.changed(path, "spec.faults.retries", "restarts had no limit; a worker's program may fail 3 times now")
        return
    job.faults["retries"] = min(limit, _MOST_RETRIES)
    account.changed(path, "spec.faults.retries", "was a limit for the job in all, and is one for each worker's program")


def gang(job: Job, drafts: Sequence[Draft], policy: View, key: str) -> None:
    """The least number of pods of some roles, as minima of those of fixed size and of the whole."""
    least = policy.number(key)
    sizes = [draft.replicas for draft in drafts]
    if least is None:
        return
    if not all(isinstance(size, int) for size in sizes):
        policy.changed(key, "spec.roles.worker.replicas.min", "the gang of an elastic job is its least size")
        return
    total, roles = sum(size for size in sizes if isinstance(size, int)), len(sizes)
    wanted = min(max(least, roles), total)
    if wanted == least:
        policy.any(key, to="spec.minPods" if roles > 1 else drafts[0].place("min"))
    else:
        bounds = f"from {roles}, one pod of each role, to {total}, all pods"
        policy.changed(key, "spec.minPods", f"is {wanted} now: {bounds}")
    if wanted == total:
        return
    if roles == 1:
        drafts[0].min = wanted
        return
    for draft in drafts:
        if draft.replicas != 1:
            draft.min = 1
    job.min_pods = wanted
