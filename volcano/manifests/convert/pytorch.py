# SPDX-License-Identifier: Apache-2.0
"""PyTorchJob (kubeflow.org/v1) to a TrainingJob.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/pytorch_types.go;
the environment of its pods: pkg/controller.v1/pytorch/{envvar,master,elastic}.go; when it has succeeded:
pytorchjob_controller.go.

A program that torchrun starts, or could start, becomes `framework: pytorch`: ranks come from the rendezvous. One that
uses the operator's variables by itself (a shell's script with --node_rank=$RANK, `accelerate launch`, an image's entry
point of which nothing is known) becomes `framework: custom` with exactly these variables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert import kubeflow, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.program import SHELLS, basename, mentions, replace_hosts
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert", "launches", "needs_variables", "resize"]

_VARIABLES = "MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|PET_[A-Z_]+"
"""The variables that the operator sets."""
_PORT = ("pytorchjob-port", 23456)
_LAUNCHERS = ("accelerate", "deepspeed", "colossalai", "horovodrun", "mpirun", "mpiexec")
_NESTED = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|\b(?:accelerate launch|deepspeed|colossalai run)\b")


def convert(document: View) -> Job:
    """The TrainingJob of a PyTorchJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    specs = spec.map("pytorchReplicaSpecs")
    drafts = kubeflow.read_replicas(
        specs, {"Master": "master", "Worker": "worker"}, main=("pytorch",), restart="OnFailure"
    )
    leader = "master" if drafts[0].name == "master" else "worker"
    replace_hosts(drafts, metadata.name, leader, account)
    job = new_job(metadata, "pytorch", drafts)
    port = kubeflow.take_port(drafts, *_PORT, account)
    if "elasticPolicy" in spec:
        _elastic(spec, specs, job)
    else:
        _fixed(spec, specs, job, port)
    kubeflow.apply_run_policy(spec.map("runPolicy"), job)
    return job


def launches(words: Sequence[str]) -> bool:
    """Whether a command is torchrun."""
    name = basename(list(words))
    module = list(words[1:3]) in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"])
    return name == "torchrun" or (name.startswith("python") and module)


def needs_variables(drafts: Sequence[Draft]) -> bool:
    """Whether the programs need the operator's variables: torchrun cannot be put before them, or is not enough."""
    return mentions(drafts, _VARIABLES) or any(_starts_processes(draft) for draft in drafts)


def _starts_processes(draft: Draft) -> bool:
    words = draft.program
    if "command" not in draft.parts:
        return True
    if basename(words) in SHELLS:
        return any(_NESTED.search(word) for word in words)
    return basename(words) in _LAUNCHERS


def _environment(pods: int, processes: int, port: int) -> dict[str, str]:
    """What the operator tells each pod but its rank, in a job of that many pods (`setPodEnv`, envvar.go)."""
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": ranks.LEADER,
        "MASTER_PORT": str(port),
        "PET_MASTER_ADDR": ranks.LEADER,
        "PET_MASTER_PORT": str(port),
        "WORLD_SIZE": str(pods * processes),
        "PET_NNODES": str(pods),
    }


def _told(job: Job, port: int, processes: str | None, source: View) -> None:
    """Make the job `custom`, with the operator's variables. `processes` is nproc_per_node as it was written."""
    account = source.account
    drafts = list(job.drafts)
    number = int(processes) if processes and processes.isdecimal() else 1
    variables = _environment(ranks.size(drafts), number, port)
    if processes:
        variables["PET_NPROC_PER_NODE"] = processes
    for draft in drafts:
        ranks.tell(draft, variables, account)
    job.framework = "custom"
    job.drafts = ranks.ranked(drafts, ("RANK", "PET_NODE_RANK"), source, account)
    account.changed(
        source.at(),
        "spec.framework",
        "is custom: the program uses the operator's variables by itself, and gets exactly these",
        "framework: pytorch with a command that torchrun can start lets the job be resized",
    )


def _fixed(spec: View, specs: View, job: Job, port: int) -> None:
    account, drafts = spec.account, job.drafts
    processes = _processes(spec, "nprocPerNode")
    alike = all(draft.template() == drafts[0].template() for draft in drafts[1:])
    plain = not launches(drafts[0].program)
    if not alike or needs_variables(drafts) or (plain and (processes or "1") not in ("1", "auto")):
        _told(job, port, processes or "auto", specs)
        if processes:
            account.kept(spec.at("nprocPerNode"), "spec.env.PET_NPROC_PER_NODE")
        return
    worker = ranks.merged(drafts, specs, account)
    assert worker is not None  # noqa: S101  # they are alike
    ranks.tell(worker, {"PYTHONUNBUFFERED": "1"}, account)
    job.drafts = [worker]
    job.elasticity["strategy"] = "fixed"
    if plain:
        worker.parts["procs"] = 1
        account.changed(
            specs.at(),
            worker.place("command"),
            "torchrun starts the program, one process a pod; RANK, WORLD_SIZE and MASTER_ADDR are as before",
            "procs: the number of GPUs of a pod, where the program can use one each",
        )
    else:
        _set_processes(worker, processes, spec, "nprocPerNode")


def _elastic(spec: View, specs: View, job: Job) -> None:
    account, policy = spec.account, spec.map("elasticPolicy")
    worker = ranks.merged(job.drafts, specs, account)
    if worker is None:
        refuse(specs.at(), "master and workers differ in an elastic job", "make their pod templates alike")
    if "command" not in worker.parts:
        refuse(
            specs.at(),
            "has no command: strategy restart starts the program anew at each resize, by torchrun",
            "write the image's entry point as the command",
        )
    if _starts_processes(worker) or mentions([worker], _VARIABLES):
        refuse(
            specs.at(),
            "starts its processes itself, with variables that are stale after a resize",
            "command: [torchrun, train.py]: torchrun reads the present size from its environment",
        )
    job.drafts = [worker]
    resize(job, worker, policy.number("minReplicas"), policy.number("maxReplicas"), policy)
    ranks.tell(worker, {"PYTHONUNBUFFERED": "1"}, account)
    _rendezvous(policy, worker)
    processes = _processes(spec, "nprocPerNode") or _number_text(policy, "nProcPerNode")
    _set_processes(worker, processes or ("auto" if launches(worker.program) else "1"), spec, "nprocPerNode")
    policy.lost(
        "metrics",
        "kfp-volcano resizes by the queue's idle resources and waiting gangs, not by a HorizontalPodAutoscaler",
    )
    if (attempts := policy.number("maxRestarts", to="spec.faults.retries")) is not None:
        job.faults["retries"] = min(max(attempts, 1), 1000)


def resize(job: Job, worker: Draft, least: int | None, most: int | None, policy: View) -> None:
    """Let the job have from `least` to `most` workers; a bound that is missing is the other one, or its size.

    (`setElasticPolicy`, pkg/apis/kubeflow.org/v1/pytorch_defaults.go.)
    """
    account, place = policy.account, worker.place("replicas")
    job.elasticity["strategy"] = "restart"
    size = worker.replicas if isinstance(worker.replicas, int) else 1
    least = least if least is not None else most if most is not None else size
    most = most if most is not None else least
    account.kept(policy.at(), place)
    if not least <= size <= most:
        account.changed(policy.at(), place, f"{size} replicas are outside {least} to {most}")
    worker.replicas = {"min": least, "max": most, "initial": min(max(size, least), most)} if least != most else least
    account.changed(
        policy.at(),
        "spec.elasticity",
        "a coordinator pod brings the workers together; its image has to hold kfp-volcano",
        "elasticity.coordinator.image: <an image with kfp-volcano>, unless the training's image has it",
    )


def _rendezvous(policy: View, worker: Draft) -> None:
    backend = policy.text("rdzvBackend")
    path = policy.at("rdzvBackend")
    if backend == "c10d":
        policy.account.kept(path, "spec.elasticity.strategy")
    elif backend:
        policy.account.changed(path, "spec.elasticity.strategy", f"is c10d, which needs no server, not {backend}")
    for key in ("rdzvHost", "rdzvPort", "rdzvId"):
        policy.changed(key, "spec.elasticity.strategy", "kfp-volcano says where the workers meet, anew at each resize")
    policy.lost("standalone", "each pod would train for itself") if policy.peek("standalone") else policy.any(
        "standalone", to="spec.elasticity.strategy"
    )
    pairs = policy.maps("rdzvConf")
    if pairs:
        settings = [f"{pair.text('key') or ''}={pair.text('value') or ''}" for pair in pairs]
        worker.env["PET_RDZV_CONF"] = ",".join(settings)
        policy.account.kept(policy.at("rdzvConf"), worker.place("env", "PET_RDZV_CONF"))


def _processes(spec: View, key: str) -> str | None:
    """nproc_per_node as it was written: auto, cpu, gpu, or a number."""
    value = spec.peek(key)
    return _number_text(spec, key) if isinstance(value, int) else spec.text(key)


def _number_text(view: View, key: str) -> str | None:
    number = view.number(key)
    return None if number is None else str(number)


def _set_processes(worker: Draft, processes: str | None, source: View, key: str) -> None:
    place, path = worker.place("procs"), source.at(key)
    if processes and processes.isdecimal():
        worker.parts["procs"] = int(processes)
        source.account.kept(path, place)
    elif processes == "cpu":
        source.account.changed(path, place, "is one process a pod, not one for each CPU of its node", "procs: <number>")
    elif processes:
        if worker.gpus != worker.parts.get("resources", {}).get("gpu", 0):
            worker.parts["procs"] = max(1, worker.gpus)  # of another vendor's, which a TrainingJob does not count
        source.account.changed(path, place, "is one process for each GPU of a pod, at least one")
