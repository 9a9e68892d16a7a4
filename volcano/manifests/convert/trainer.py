# SPDX-License-Identifier: Apache-2.0
"""TrainJob (trainer.kubeflow.org/v1alpha1) with its runtime to a TrainingJob.

Source: kubeflow/trainer, pkg/apis/trainer/v1alpha1/{trainjob,trainingruntime}_types.go as of v2.0 to v2.3; how a job
and its runtime become pods: pkg/runtime/framework/plugins/jobset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.schemas.quantities import duration_text
from kfp_volcano.volcano.manifests.convert import kubeflow, ml_policies
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.environment import read_environment
from kfp_volcano.volcano.manifests.convert.metadata import read_labels, read_metadata
from kfp_volcano.volcano.manifests.convert.overrides import read_overrides
from kfp_volcano.volcano.manifests.convert.pod import read_program, read_template
from kfp_volcano.volcano.manifests.convert.source import refuse
from kfp_volcano.volcano.manifests.convert.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.runtimes import Runtimes
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert"]

_GROUP = "trainer.kubeflow.org"
_ANCESTOR = f"{_GROUP}/trainjob-ancestor-step"
_TORCHTUNE = ["tune", "run"]
_MAIN = ("node", "trainer", "launcher")
_NODE, _LAUNCHER = "node", "launcher"


def convert(document: View, runtimes: Runtimes) -> Job:
    """The TrainingJob of a TrainJob. Raises SpecError where it cannot be said."""
    spec = document.map("spec")
    metadata = read_metadata(document)
    runtime = _runtime(spec, runtimes, metadata.namespace or "default")
    trainer, policy = spec.map("trainer"), runtime.map("mlPolicy")
    if trainer.peek("command") == _TORCHTUNE:
        refuse(trainer.at("command"), "the operator composes torchtune's command line", "write the whole command")
    job_sets = runtime.map("template")
    replicated = job_sets.map("spec").maps("replicatedJobs")
    resources = trainer.map("resourcesPerNode") if "resourcesPerNode" in trainer else None
    drafts = _drafts(replicated, resources, mpi="mpi" in policy)
    _read_trainer(trainer, drafts)
    patched = read_overrides(spec, {replica.text("name") or "": draft for replica, draft in drafts})
    roles = [draft for _, draft in drafts]
    job = new_job(metadata, "custom", roles)
    for view in (job_sets.map("metadata"), *patched, spec):
        _read_job_metadata(view, job)
    _read_ends(job_sets.map("spec"), [replica for replica, _ in drafts], job)
    ml_policies.apply(job, trainer, policy, parallelism=_parallelism(drafts))
    group = runtime.map("podGroupPolicy")
    job.topology = read_topology(group.map("volcano").map("networkTopology"))
    group.lost("coscheduling", "Volcano schedules the pods as a gang, and the gang waits until there is room")
    _lose(spec, replicated)
    kubeflow.read_owner(spec)
    if (deadline := spec.number("activeDeadlineSeconds", to="spec.faults.timeout")) is not None:
        job.faults["timeout"] = duration_text(deadline)
    return job


def _runtime(spec: View, runtimes: Runtimes, namespace: str) -> View:
    """The spec of the job's runtime, which is read like the job itself."""
    reference, account = spec.map("runtimeRef"), spec.account
    name = reference.text("name") or refuse(reference.at("name"), "is missing", "the name of a training runtime")
    kind = reference.text("kind", to="spec") or "ClusterTrainingRuntime"
    if reference.text("apiGroup", to="spec") not in (None, _GROUP):
        refuse(reference.at("apiGroup"), "is not that of Kubeflow Trainer's runtimes", _GROUP)
    value, given = runtimes.find(kind, namespace, name)
    if value is None:
        what = kind.lower() if kind == "ClusterTrainingRuntime" else f"{kind.lower()} -n {namespace}"
        refuse(
            reference.at("name"),
            f"the {kind} {name} is in none of the files",
            f"kubectl get {what} {name} -o yaml > runtime.yaml, and give that file too",
        )
    why = "the pods are those of the runtime as it is now: the job does not follow its changes"
    if not given:
        why = f"{name} is in none of the files: it is taken for the one that Kubeflow Trainer 2.3 brings along"
    account.changed(reference.at("name"), "spec", why, "" if given else "give the file of the cluster's own one too")
    if not given:
        return account.open(value, ("runtime",)).map("spec")
    view = account.open(value, ("runtime",))
    for key in ("apiVersion", "kind", "metadata", "status"):
        view.any(key)  # who the runtime is, not what the job asks for
    return view.map("spec")


def _drafts(replicated: Sequence[View], resources: View | None, *, mpi: bool) -> list[tuple[View, Draft]]:
    """The replicated jobs that train, as roles: the trainer's, and with MPI the nodes besides."""
    found = []
    for replica in replicated:
        labels = replica.map("template").map("metadata").peek("labels")
        name = replica.peek("name")
        trains = isinstance(labels, dict) and labels.get(_ANCESTOR) == "trainer"
        if not trains and not (mpi and name in (_NODE, _LAUNCHER)):
            continue
        job = replica.map("template").map("spec")
        role = _LAUNCHER if mpi and (name == _LAUNCHER or (trains and name != _NODE)) else "worker"
        # With MPI the nodes compute; the launcher only starts.
        asked = None if role == _LAUNCHER else resources
        draft = read_template(job.map("template"), role, main=_MAIN, resources=asked)
        pod = job.map("template").map("spec")
        draft.restart = pod.text("restartPolicy") or "OnFailure"
        draft.restart_path = pod.at("restartPolicy")
        found.append((replica, draft))
    roles = [draft.name for _, draft in found]
    wanted = [_LAUNCHER, "worker"] if mpi else ["worker"]
    if sorted(roles) != wanted:
        refuse(
            replicated[0].at() if replicated else "runtime.spec.template.spec.replicatedJobs",
            f"the runtime trains in {', '.join(roles) or 'no replicated job'}",
            f"one for {' and one for '.join(wanted)}, labelled {_ANCESTOR}: trainer",
        )
    return sorted(found, key=lambda each: each[1].name)


def _read_trainer(trainer: View, drafts: Sequence[tuple[View, Draft]]) -> None:
    """What the job says of its trainer, over what the runtime says (`Builder.Trainer`, jobset/builder.go)."""
    first, *others = [draft for _, draft in drafts]
    read_program(trainer, first)
    for draft in (first, *others):
        read_environment(trainer, draft, override=True)


def _read_job_metadata(view: View, job: Job) -> None:
    labels, annotations, queue = read_labels(view)
    job.labels = {**job.labels, **labels}
    job.annotations = {**job.annotations, **annotations}
    job.queue = queue or job.queue


def _read_ends(spec: View, replicas: Sequence[View], job: Job) -> None:
    """When the JobSet and its Jobs end, and how often they are tried (jobset.x-k8s.io/v1alpha2, batch/v1)."""
    limit, path = kubeflow.BACKOFF, replicas[-1].at("template", "spec", "backoffLimit")
    for replica in replicas:
        template = replica.map("template").map("spec")
        if (found := template.number("backoffLimit")) is not None:
            limit, path = found, template.at("backoffLimit")
        if (seconds := template.number("activeDeadlineSeconds", to="spec.faults.timeout")) is not None:
            job.faults["timeout"] = duration_text(seconds)
        template.lost("ttlSecondsAfterFinished", "the Job stays as long as spec.faults.keepFor says")
        template.changed("completionMode", "spec.roles", "each pod knows its index in its role")
        replica.changed("dependsOn", "spec.roles", "the pods of all roles start together, as a gang")
    restarts = spec.map("failurePolicy").number("maxRestarts")
    if restarts:
        job.faults.update(failed="restartJob", retries=min(restarts, 1000))
        spec.account.kept(spec.at("failurePolicy", "maxRestarts"), "spec.faults.retries")
        for draft in job.drafts:
            spec.account.changed(draft.restart_path, "spec.faults.failed", "all pods start anew, as the JobSet's do")
    else:
        kubeflow.restarts(job, spec.account, limit, path)
    kubeflow.read_limits(spec, job)
    kubeflow.read_owner(spec)
    spec.changed("successPolicy", "spec.framework", "the job has succeeded when its launcher, or all its workers, have")
    spec.changed("network", "spec", "each pod has a name, also before it is ready")


def _parallelism(drafts: Sequence[tuple[View, Draft]]) -> int:
    """The pods of the trainer where no policy says their number."""
    replica = drafts[-1][0]
    template = replica.map("template").map("spec")
    place = drafts[-1][1].place("replicas")
    found = template.number("parallelism", to=place)
    template.number("completions", to=place)
    replica.number("replicas", to=place)
    return 1 if found is None else found


def _lose(spec: View, replicated: Sequence[View]) -> None:
    why = "nothing fetches the dataset and the model before training"
    remedy = "a step of the pipeline before it, or an init container, that fills the volume"
    spec.lost("initializer", why, remedy)
    for replica in replicated:
        labels = replica.map("template").map("metadata").labels("labels")
        ancestor = labels.get(_ANCESTOR, "")
        replica.map("template").map("metadata").any("labels")
        if ancestor.endswith("initializer"):
            for key in replica.rest():
                replica.lost(key, why, remedy)
        elif "template" in replica.rest() and replica.peek("name") not in (_NODE, _LAUNCHER) and ancestor != "trainer":
            for key in replica.rest():
                replica.lost(key, "a job beside the training has no counterpart", "a step of the pipeline")
