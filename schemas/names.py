# SPDX-License-Identifier: Apache-2.0
"""The names this project owns on the cluster: annotations, labels, tasks, environment, ports.

One place, so that whoever writes a name and whoever reads it cannot disagree.
"""

from __future__ import annotations

import hashlib
import re

# Annotations on the Job; each holds JSON in the form of a type of `schemas.records`.
OWNER = "kfp-volcano/owner"
"""Whose the Job is: run, step, digest of the spec. A retried step adopts its Job, another's is refused."""
REQUEST = "kfp-volcano/request"
"""The resize that is asked for; the next one is written when it is answered."""
RESIZE = "kfp-volcano/resize"
"""What became of resizes: at most 50, newest last."""
PROGRESS = "kfp-volcano/progress"
"""Where training stands, at most every five seconds, and the last changes of membership."""
STEPS = "kfp-volcano/steps"
"""What the steps of the DAG did."""
HOLD = "kfp-volcano/hold"
"""A person's: no automatic resize until then, and a size where one is set."""
MOVES = "kfp-volcano/moves"
"""Pods that were taken off nodes on which their preflight failed."""
CLASSES = "kfp-volcano/classes"
"""Changes of the Job's priority class by the autoscaler."""
ADVICE = "kfp-volcano/advice"
"""What its resources might have been, by what they used."""
SPEC = "kfp-volcano/spec"
"""The TrainingJob the Job was rendered from, as JSON: what the autoscaler and the steps read ranges from."""

# Labels on the Job.
RUN_LABEL = "kfp-volcano/run"
"""A digest of the run id (`run_label`): all Jobs of a run have it."""
INSTANCE_LABEL = "app.kubernetes.io/instance"
"""The Job's name: what was made for one Job has it."""
MANAGED_LABEL = "app.kubernetes.io/managed-by"
"""What is made for Jobs has it."""
MANAGER = "kfp-volcano"
"""The value of `MANAGED_LABEL` of all that is made for Jobs."""
TEAM_LABEL = "kfp-volcano/team"
"""Whose work it is, in reports; the namespace where absent."""

# What others set on Jobs and pods, by prefix; a spec may not.
_RESERVED_LABELS = ("kfp-volcano/", "app.kubernetes.io/", "volcano.sh/")
_RESERVED_ANNOTATIONS = ("kfp-volcano/", "volcano.sh/", "scheduling.k8s.io/", "scheduling.volcano.sh/")
_USER_ANNOTATIONS = (
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/vgpu-mode",
    "volcano.sh/vgpu-podgroup-policy",
)
"""Volcano's annotations that are a user's to set."""

# Tasks of an elastic Job. Other roles keep their own names; these three are reserved.
COORDINATOR = "coordinator"
CORE = "core"
ELASTIC = "elastic"
WORKER = "worker"
"""The role that trains, and the only one whose number may change."""
RESERVED_TASKS = (COORDINATOR, CORE, ELASTIC)

# Environment of the Job's containers.
ENV_JOB = "KFP_VOLCANO_JOB"
"""namespace/name of the Job."""
ENV_JOB_NAME = "KFP_VOLCANO_JOB_NAME"
"""The Job's name, in pods of Jobs that a CronJob makes: the other variables refer to it."""
ENV_POD = "KFP_VOLCANO_POD"
"""The pod's name."""
ENV_POD_IP = "KFP_VOLCANO_POD_IP"
"""The pod's address."""
ENV_TASK = "KFP_VOLCANO_TASK"
"""The pod's task in the Volcano Job."""
ENV_TASK_INDEX = "KFP_VOLCANO_TASK_INDEX"
"""The pod's place in its task, from 0."""
ENV_COORDINATOR = "KFP_VOLCANO_COORDINATOR"
"""Host of the coordinator pod."""
ENV_JOB_DIR = "KFP_VOLCANO_JOB_DIR"
"""Folder on the checkpoint volume that belongs to this Job alone."""
ENV_ELASTICITY = "KFP_VOLCANO_ELASTICITY"
"""JSON of `schemas.training_job.RuntimeSettings`: what training code needs of the spec."""
ENV_CLUSTER = "KFP_VOLCANO_CLUSTER"
"""Which cluster to talk to: `embedded:<address of the host's Ray>`, `kubernetes[:<context>]` or `in-cluster`."""
ENV_RUN_ID = "KFP_VOLCANO_RUN_ID"
"""Overrides the pipeline run's id, so that a run on the embedded cluster can be taken up again."""

ENV_PROFILES = "KFP_VOLCANO_PROFILES"
"""File with the platform's ResourceProfiles: what is compiled or submitted here may name them."""
ENV_POOLS = "KFP_VOLCANO_POOLS"
"""File with the platform's GPUPools: what is submitted here is bound to the pool of its priority."""
ENV_OUT = "KFP_VOLCANO_OUT"
"""Folder of a run on this machine: its report, ledgers, logs, and how a failed step failed."""

ENV_ROLE = "KFP_VOLCANO_ROLE"
"""The role of the pod's task; `worker` for core and elastic."""
ENV_FRAMEWORK = "KFP_VOLCANO_FRAMEWORK"
"""The spec's framework: of which kind the environment of a generation is (strategy restart)."""
ENV_PROCS = "KFP_VOLCANO_PROCS"
"""Processes (MPI: slots) a pod of the role."""
ENV_ROLES = "KFP_VOLCANO_ROLES"
"""JSON, role to the fewest of its pods: the roles beside the workers (strategy restart)."""
ENV_LEAST = "KFP_VOLCANO_LEAST"
"""The fewest workers that a generation has (strategy restart)."""
ENV_LEADER = "KFP_VOLCANO_LEADER"
"""Host of the first pod of the leading role: launcher, chief, head, master, or else the workers."""
ENV_HEAD = "KFP_VOLCANO_HEAD"
"""Host and port of Ray's head."""
ENV_WORKERS = "KFP_VOLCANO_WORKERS"
"""Number of workers: of a Job of fixed size, or of the generation (strategy restart)."""
ENV_HOSTS = "KFP_VOLCANO_HOSTS"
"""The workers of an MPI Job of fixed size, or of the generation: `host:processes`, with commas between them."""
ENV_PORT = "KFP_VOLCANO_PORT"
"""Port of the pod's own server (torchrun's, TensorFlow's) where that is not the framework's: pods may share a machine's
ports."""
ENV_RANK = "KFP_VOLCANO_RANK"
"""The pod's place among the pods of its role in the generation, from 0 (strategy restart)."""
ENV_GENERATION = "KFP_VOLCANO_GENERATION"
"""The generation's number, from 1 (strategy restart)."""
ENV_SSH = "KFP_VOLCANO_SSH"
"""Folder of the keys that the pods of an MPI Job reach each other with."""
ENV_NODE = "KFP_VOLCANO_NODE"
"""The pod's node."""

# The pods.
PREFLIGHT = "kfp-volcano-preflight"
"""The init container that examines a pod's devices."""
UNFIT_LABEL = "kfp-volcano/unfit"
"""Of nodes whose devices failed the preflight: pods with devices avoid them."""
UNFIT = UNFIT_LABEL
"""Annotation of such a node (`schemas.records.Unfit`): until when. A label without it is a person's, and stays."""
AGENT_PATH = "/kfp-volcano/agent"
"""Where the agent is put for images that lack it."""
AGENT_FILE = "agent.pyz"
VOLUME_PREFIX = "kfp-volcano-"
"""Names of volumes that the manifest adds by itself begin so."""
CHECKPOINTS_VOLUME = VOLUME_PREFIX + "checkpoints"
SHM_VOLUME = VOLUME_PREFIX + "shm"
AGENT_VOLUME = VOLUME_PREFIX + "agent"
POLICIES_VOLUME = VOLUME_PREFIX + "policies"
POLICIES_CONFIG = "kfp-volcano-policies"
"""The ConfigMap with the Policies of autoscalers beside Jobs, in the namespace of these; there need be none."""
POLICIES_PATH = "/kfp-volcano/policies"
"""Where coordinator pods have it."""
ENV_POLICIES = "KFP_VOLCANO_POLICIES"
"""Folder with the Policies of the autoscaler beside a Job."""
MOUNT_PATH = "/kfp-volcano/volume"
"""Where the claim of `checkpoint.volume` is mounted in every pod."""
SVC_MOUNT_PATH = "/etc/volcano"
"""Where Volcano's svc plugin mounts the lists of hosts."""

# Ports of the frameworks; the same in each pod.
RENDEZVOUS_PORT = 29400
TENSORFLOW_PORT = 2222
SSH_PORT = 2222
RAY_PORT = 6379

# Ports of the coordinator.
LIGHTHOUSE_PORT = 29510
PROGRESS_PORT = 29511
GENERATIONS_PORT = 29512

ADVICE_MAP = "kfp-volcano-advice"
"""The ConfigMap that keeps the advice on requests for each training's next start."""
COORDINATOR_ACCOUNT = "kfp-volcano-coordinator"
"""The service account of coordinator pods that `deploy/namespace` puts beside trainings."""
SYSTEM_NAMESPACE = "kfp-volcano-system"
"""Where `deploy/base` puts what serves all namespaces."""

# Queues.
QUEUE_TREE_LABEL = "kfp-volcano/queue-tree"
"""The name of the QueueTree that a Queue or a ResourceQuota comes from: no other is ever deleted."""
ROOT_QUEUE = "root"
"""Volcano's own queue above all others."""
DEFAULT_QUEUE = "default"
"""Volcano's own queue for Jobs that name none."""

# Pools of shared GPUs.
POOL_LABEL = "kfp-volcano/gpu-pool"
"""On a node: the pool that it belongs to. In a pod's node selector: the pool from which its shares of GPUs come."""
POOL_SINCE = "kfp-volcano/gpu-pool-since"
"""On a node: the time of its last move between pools, in Unix seconds."""

# Resources.
GPU = "nvidia.com/gpu"
RDMA = "rdma/hca"
"""Where the spec does not say what the device plugin calls its RDMA devices."""
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
"""In MiB."""
VGPU_CORES = "volcano.sh/vgpu-cores"
"""In percent."""

_NOT_DNS = re.compile(r"[^a-z0-9-]+")
_LONGEST_SUFFIX = len("-coordinator-0")
_LONGEST_LABEL = 63


def labels_for(job: str) -> dict[str, str]:
    """The labels of what is made beside the Job of that name, by which it is found when the Job is gone."""
    return {MANAGED_LABEL: MANAGER, INSTANCE_LABEL: job}


def is_reserved_label(name: str) -> bool:
    """Whether others set a label, so that a spec may not."""
    return name.startswith(_RESERVED_LABELS) and name != TEAM_LABEL


def is_reserved_annotation(name: str) -> bool:
    """Whether others set an annotation, so that a spec may not."""
    return name.startswith(_RESERVED_ANNOTATIONS) and name not in _USER_ANNOTATIONS


def surplus_priority(priority: str) -> str:
    """The PriorityClass of workers above the minimum, below that of the gang (`deploy/` installs both)."""
    return f"{priority}-surplus"


def run_label(run_id: str) -> str:
    """A run id as a label value: 12 hex digits of its SHA-256, for run ids may hold anything."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:12]


def job_name(name: str, run_id: str) -> str:
    """The Job's name for a spec's name in a run: the same for every attempt of a step, different between runs.

    Cut so that `<job>-<task>-<index>` of any task stays a valid host name (63 characters, DNS-1123).
    """
    suffix = "-" + run_label(run_id)[:8]
    room = _LONGEST_LABEL - len(suffix) - _LONGEST_SUFFIX - 4
    stem = _NOT_DNS.sub("-", name.lower()).strip("-")[:room].strip("-") or "job"
    return stem + suffix


def pod_name(job: str, task: str, index: int) -> str:
    """Volcano's name of a pod (`MakePodName`, pkg/controllers/job/helpers/helpers.go)."""
    return f"{job}-{task}-{index}"


def longest_role(replicas: int) -> int:
    """How many characters the name of a role of that many pods may have, so that pods have names.

    Pods are named <job>-<role>-<index>, and `job_name` leaves room for the tasks that kfp-volcano makes.
    """
    return _LONGEST_LABEL - len(pod_name(job_name("x" * _LONGEST_LABEL, ""), "", max(replicas, 1) - 1))


def host_name(job: str, task: str, index: int) -> str:
    """A pod's name in DNS within its namespace, as Volcano's `svc` plugin arranges it."""
    return f"{pod_name(job, task, index)}.{job}"


def resource_name(short: str) -> str:
    """A resource's own name, for the one that specs use: `gpu` is `nvidia.com/gpu`."""
    return GPU if short == "gpu" else short


def short_resource(name: str) -> str:
    """What specs call a resource: the inverse of `resource_name`."""
    return "gpu" if name == GPU else name
