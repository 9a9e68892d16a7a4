# SPDX-License-Identifier: Apache-2.0
"""What each framework needs so that its pods find each other and its program starts: environment, command, plugins.

Hosts are names in DNS that Volcano's svc plugin arranges; ports are fixed. A Job of fixed size knows all of it when it
is made. With strategy `restart` an agent is the first process of a pod and takes what depends on the size from the
coordinator. That goes for PyTorch, too: when pods come and go torchrun's own rendezvous waits for those that went, and
it loses the steps since the last checkpoint. With strategy `live` a pod of several processes has a torchrun of its own,
which knows of no other pod.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.schemas.training_job import Mpi
from kfp_volcano.volcano.manifests import scripts
from kfp_volcano.volcano.manifests.devices import whole_cpus, whole_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.training_job import Agent, Role, TrainingJob

__all__ = [
    "command",
    "coordinated",
    "copied_agent",
    "environment",
    "examined",
    "grace_s",
    "leader",
    "plugins",
    "succeeding",
    "task_of",
    "unwrapped",
]

_LEADERS = ("launcher", "chief", "head", "master")
_AGENT = ("python", "-m", "kfp_volcano.elastic.agent", "--")
_STARTER = ("python", "-m", "kfp_volcano.elastic.runtime", "--")
_COPIED_AGENT = ("python3", f"{names.AGENT_PATH}/{names.AGENT_FILE}", "--")
_TORCHRUN = ("torchrun", "--no-python")
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def coordinated(job: TrainingJob) -> bool:
    """Whether a coordinator belongs to the Job: where the number of workers may change, or could."""
    return job.elasticity.strategy != "fixed"


def task_of(job: TrainingJob, role: Role) -> str:
    """The task that holds the first pods of a role."""
    return names.CORE if role is job.workers else role.name


def _least(role: Role) -> int:
    """The fewest pods of a role that a program starts with."""
    return role.min or role.replicas.min


def leader(job: TrainingJob) -> Role:
    """The role whose first pod the others look for."""
    return next((role for name in _LEADERS for role in job.roles if role.name == name), job.workers)


def succeeding(job: TrainingJob) -> list[Role]:
    """The roles whose completion is the Job's."""
    named = [role for role in job.roles if role.success]
    if named:
        return named
    usual = leader(job) if job.framework in ("tensorflow", "mpi", "ray") else job.workers
    return [] if usual.success is False else [usual]


def plugins(job: TrainingJob) -> dict[str, list[str]]:
    """Volcano's plugins beside svc. Those for pytorch, tensorflow and mpi know one worker task, and go stale."""
    if job.framework != "mpi":
        return {}
    path = (job.mpi or Mpi()).ssh_path
    return {"ssh": [f"--ssh-key-file-path={path}", f"--ssh-port={names.SSH_PORT}"]}


def environment(job: TrainingJob, role: Role, name: str) -> dict[str, str]:
    """What a role's program finds in its environment in the Job called `name`."""
    head = leader(job)
    common = {names.ENV_LEADER: names.host_name(name, task_of(job, head), 0)}
    if not coordinated(job):
        common[names.ENV_WORKERS] = str(job.workers.replicas.min)
    elif job.elasticity.strategy == "restart":
        fixed = {each.name: _least(each) for each in job.roles if each is not job.workers}
        common[names.ENV_ROLES] = json.dumps(fixed, separators=(",", ":"))
        common[names.ENV_LEAST] = str(_least(job.workers))
    match job.framework:
        case "pytorch" if role is job.workers and job.elasticity.strategy != "live":
            return {**common, **_torchrun(job, name)}
        case "pytorch" if several(job, role):
            return {**common, **_torchrun_within(job)}
        case "tensorflow" if not coordinated(job):
            return {**common, **_tensorflow(job, role, name)}
        case "mpi":
            return {**common, **_mpi(job, name)}
        case "ray":
            return {**common, names.ENV_HEAD: f"{common[names.ENV_LEADER]}:{names.RAY_PORT}"}
    return common


def _torchrun(job: TrainingJob, name: str) -> dict[str, str]:
    """The settings of torchrun, which takes each option from `PET_<OPTION>`; the first worker hosts the rendezvous.

    With strategy `restart` the agent adds those that depend on the size.
    """
    workers = job.workers
    settings = {
        "PET_NPROC_PER_NODE": str(workers.processes),
        "PET_RDZV_BACKEND": "c10d",
        "PET_MAX_RESTARTS": str(job.faults.retries),
    }
    if coordinated(job):
        return settings
    least = _least(job.workers)
    return {
        **settings,
        "PET_NNODES": f"{least}:{workers.replicas.max}" if least < workers.replicas.max else str(least),
        "PET_RDZV_ENDPOINT": f"{names.host_name(name, names.CORE, 0)}:{names.RENDEZVOUS_PORT}",
        "PET_RDZV_ID": name,
        "PET_LOCAL_ADDR": f"$({names.ENV_POD_IP})",
    }


def several(job: TrainingJob, role: Role) -> bool:
    """Whether each pod of a role is a worker of several processes of strategy `live`."""
    live = job.framework == "pytorch" and job.elasticity.strategy == "live"
    return live and role is job.workers and role.processes > 1


def _torchrun_within(job: TrainingJob) -> dict[str, str]:
    """The settings of a torchrun that starts the processes of one pod."""
    return {
        "PET_NPROC_PER_NODE": str(job.workers.processes),
        "PET_STANDALONE": "1",
        "PET_LOCAL_ADDR": f"$({names.ENV_POD_IP})",
        "PET_MAX_RESTARTS": str(job.faults.retries),
        # A store of torchrun's own outlives its processes, and those of the next start would find the last ones' keys.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(math.ceil(job.elasticity.grace_s)),
        "GLOO_SOCKET_IFNAME": "lo",  # between processes of the pod alone; the runtime names the pod's address to others
    }


def _tensorflow(job: TrainingJob, role: Role, name: str) -> dict[str, str]:
    """TF_CONFIG, in which Kubernetes puts the pod's index; none where a pod is alone, as MirroredStrategy wants it."""
    cluster = {
        each.name: [
            f"{names.host_name(name, task_of(job, each), index)}:{names.TENSORFLOW_PORT}"
            for index in range(each.replicas.min)
        ]
        for each in job.roles
        if each.name != "evaluator"
    }
    if sum(map(len, cluster.values())) == 1 and len(job.roles) == 1:
        return {}
    text = json.dumps({"cluster": cluster, "task": {"type": role.name, "index": 0}}, separators=(",", ":"))
    return {"TF_CONFIG": text.removesuffix("0}}") + f"$({names.ENV_TASK_INDEX})}}}}"}


def _mpi(job: TrainingJob, name: str) -> dict[str, str]:
    keys = {names.ENV_SSH: (job.mpi or Mpi()).ssh_path}
    if coordinated(job):
        return keys
    workers = job.workers
    hosts = (names.host_name(name, names.CORE, index) for index in range(workers.replicas.min))
    return {**keys, names.ENV_HOSTS: ",".join(f"{host}:{workers.processes}" for host in hosts)}


def command(job: TrainingJob, role: Role) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Command and arguments of a role's container; no command: the image's entry point, with these arguments."""
    own = role.command or job.command
    arguments = role.args or (() if role.command else job.args)
    started = _started(job, role, (*own, *arguments) if own else ())
    if not started:
        return (), arguments
    cleanup = job.faults.cleanup
    if cleanup and examined(job, role):
        return scripts.tidied(started, cleanup, job.elasticity.grace_s), ()
    return started, ()


def grace_s(job: TrainingJob, role: Role) -> int:
    """How long a role's pods have to end, in whole seconds: their program's time, and that of the clean-up after it."""
    cleanup = job.faults.cleanup if examined(job, role) else None
    return math.ceil(job.elasticity.grace_s) + (scripts.tidying_s(cleanup) if cleanup else 0)


def unwrapped(words: Sequence[str]) -> tuple[str, ...]:
    """The program that a container's command comes to, behind the agent and what waits or sets up before it."""
    command = tuple(words)
    for starter in (_AGENT, _COPIED_AGENT, _STARTER):
        if command[: len(starter)] == starter:
            command = command[len(starter) :]
    return scripts.behind(command)


def examined(job: TrainingJob, role: Role) -> bool:
    """Whether preflight and clean-up are for a role: it has GPUs, or no role has any and it is the workers'."""
    return role.resources.gpu > 0 or (role is job.workers and not any(each.resources.gpu for each in job.roles))


def _started(job: TrainingJob, role: Role, program: tuple[str, ...]) -> tuple[str, ...]:
    match job.framework, role.name:
        case "mpi", "launcher":
            return _under_agent(job, scripts.mpi_launcher(program))
        case "mpi", _:
            return _under_agent(job, program if role.command else scripts.mpi_worker())
        case "ray", "head":
            least = _least(job.workers)
            size = {"cpus": whole_cpus(role.resources), "gpus": whole_gpus(role.resources)}
            return scripts.ray_head(program, workers=least, **size)
        case "ray", _:
            return scripts.ray_worker(cpus=whole_cpus(role.resources), gpus=whole_gpus(role.resources))
        case "pytorch", names.WORKER if program:
            return _processes(job, role, program)
    return _under_agent(job, program)


def _processes(job: TrainingJob, role: Role, program: tuple[str, ...]) -> tuple[str, ...]:
    """A worker's program of PyTorch, in as many processes as it has."""
    itself = program[0].rsplit("/", 1)[-1] == "torchrun" or any(part in _TORCH_MODULES for part in program[:4])
    if job.elasticity.strategy == "live":
        return (*_STARTER, *program) if several(job, role) and not itself else program
    started = program if itself else (*_TORCHRUN, *program)
    return _under_agent(job, started) if coordinated(job) else scripts.torchrun(started)


def _under_agent(job: TrainingJob, program: tuple[str, ...]) -> tuple[str, ...]:
    if job.elasticity.strategy != "restart" or not program:
        return program
    return (*(_COPIED_AGENT if job.elasticity.agent else _AGENT), *program)


def copied_agent(job: TrainingJob, role: Role) -> Agent | None:
    """The agent that is copied into a role's pods; None where the role's image has it, or needs none."""
    starts = role in job.roles and command(job, role)[0]
    return job.elasticity.agent if starts and job.elasticity.strategy == "restart" else None
