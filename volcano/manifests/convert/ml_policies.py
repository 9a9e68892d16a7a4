# SPDX-License-Identifier: Apache-2.0
"""What the policy of a training runtime (`mlPolicy`) gives the pods: their number, and how they find each other.

Source: kubeflow/trainer (v2.3), pkg/runtime/framework/plugins/{torch,mpi,jax,xgboost,plainml}.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.volcano.manifests.convert import mpi, pytorch, ranks
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["apply"]

_PORT = 29500
"""`ContainerTrainerPort`, pkg/constants/constants.go."""


def apply(job: Job, trainer: View, policy: View, *, parallelism: int) -> None:
    """Give the roles of a job their sizes and the environment of the policy; `parallelism` where none is said."""
    worker = job.drafts[-1]
    place = worker.place("replicas")
    default = policy.number("numNodes", to=place)
    nodes = trainer.number("numNodes", to=place)
    worker.replicas = nodes if nodes is not None else default if default is not None else parallelism
    if worker.replicas == 0:
        refuse(trainer.at("numNodes"), "is 0: there is nothing to run", "at least 1")
    if "flux" in policy:
        refuse(policy.at("flux"), "Flux starts the program, and has no counterpart", "framework mpi, with mpirun")
    if "mpi" in policy:
        _mpi(job, trainer, policy.map("mpi"))
    elif "torch" in policy:
        _torch(job, trainer, policy.map("torch"))
    elif "jax" in policy:
        policy.any("jax", to="spec.env")
        _told(
            worker,
            {
                "JAX_NUM_PROCESSES": str(worker.replicas),
                "JAX_PROCESS_ID": ranks.INDEX,
                "JAX_COORDINATOR_ADDRESS": f"{ranks.LEADER}:{_PORT}",
            },
            trainer,
        )
    elif "xgboost" in policy:
        policy.any("xgboost", to="spec.env")
        _told(
            worker,
            {
                "DMLC_TRACKER_URI": ranks.LEADER,
                "DMLC_TRACKER_PORT": str(_PORT),
                "DMLC_TASK_ID": ranks.INDEX,
                "DMLC_NUM_WORKER": str(worker.replicas * max(1, worker.gpus)),
            },
            trainer,
        )
    if not {"torch", "mpi"} & {*policy}:
        trainer.changed("numProcPerNode", worker.place(), "nothing reads it without a policy of PyTorch or MPI")


def _told(worker: Draft, variables: dict[str, str], trainer: View) -> None:
    ranks.tell(worker, variables, trainer.account)


def _torch(job: Job, trainer: View, policy: View) -> None:
    """As framework pytorch where torchrun starts the program, else with the variables that Trainer sets (torch.go)."""
    account, worker = trainer.account, job.drafts[-1]
    policy.lost("envInjection", "the other containers do not get the variables of torchrun")
    processes = _processes(trainer, policy, worker)
    elastic = policy.map("elasticPolicy")
    launched = pytorch.launches(worker.program) and not pytorch.needs_variables([worker])
    if "elasticPolicy" in policy and not launched:
        refuse(elastic.at(), "is for programs that torchrun starts", "command: [torchrun, train.py]")
    if not launched:
        _told(
            worker,
            {
                "PET_NNODES": str(worker.replicas),
                "PET_NPROC_PER_NODE": str(processes),
                "PET_NODE_RANK": ranks.INDEX,
                "PET_MASTER_ADDR": ranks.LEADER,
                "PET_MASTER_PORT": str(_PORT),
            },
            trainer,
        )
        account.changed(
            trainer.at("command"),
            "spec.framework",
            "is custom: the program is started as it is, with the variables that Trainer sets",
            "framework: pytorch with torchrun as the command lets the job be resized",
        )
        return
    job.framework = "pytorch"
    worker.parts["procs"] = processes
    job.elasticity["strategy"] = "fixed"
    least, most = elastic.number("minNodes"), elastic.number("maxNodes")
    if least is not None or most is not None:
        pytorch.resize(job, worker, least, most, elastic)
    if (attempts := elastic.number("maxRestarts", to="spec.faults.retries")) is not None:
        job.faults.update(failed="retry", retries=min(max(attempts, 1), 1000))
    elastic.lost("metrics", "kfp-volcano resizes by the queue's idle resources and waiting gangs")


def _processes(trainer: View, policy: View, worker: Draft) -> int:
    """Processes a node: one for each GPU, else for each CPU, where no number is said (`EnforceMLPolicy`, torch.go)."""
    place = worker.place("procs")
    own, given = trainer.any("numProcPerNode", to=place), policy.any("numProcPerNode", to=place)
    said = own if own is not None else given
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    if isinstance(said, str) and said.isdecimal():
        return int(said)
    if said == "gpu" or (worker.gpus and said != "cpu"):
        return max(1, worker.gpus)
    cpus = worker.parts.get("resources", {}).get("cpu")
    return max(1, math.ceil(quantity(cpus))) if cpus is not None else 1


def _mpi(job: Job, trainer: View, policy: View) -> None:
    account = trainer.account
    launcher, worker = job.drafts
    mpi.settle_launcher(launcher, trainer, account)
    mpi.settle_worker(worker, trainer, account)
    job.framework = "mpi"
    place = worker.place("procs")
    given, own = policy.any("numProcPerNode", to=place), trainer.any("numProcPerNode", to=place)
    said = own if own is not None else given
    worker.parts["procs"] = said if isinstance(said, int) and (said > 1 or own) else max(1, worker.gpus)
    job.mpi["sshPath"] = policy.text("sshAuthMountPath", to="spec.mpi.sshPath") or "/root/.ssh"
    policy.text("mpiImplementation", to="spec.framework")
    if policy.peek("runLauncherAsNode"):
        why = "the launcher only starts the program: all nodes are workers, so there is one pod more"
        policy.changed("runLauncherAsNode", worker.place("replicas"), why)
    policy.flag("runLauncherAsNode", to="spec.framework")
