# SPDX-License-Identifier: Apache-2.0
"""What is known of others' libraries: which names give a rank, a number of workers, an optimizer and the like."""

from __future__ import annotations

import enum
import re

__all__ = [
    "ATTRIBUTES",
    "CALLS",
    "FIRST_RANK_DECORATORS",
    "LR_NAME",
    "PARAMETERS",
    "TF_CONFIG",
    "TRAINING",
    "Tag",
    "optimizer",
    "scheduler",
    "variable",
]


class Tag(enum.Flag):
    """What a value is, as far as it matters here; a value may be several."""

    NONE = 0
    RANK = enum.auto()
    """Differs by worker: a rank, or a condition on one."""
    WORLD = enum.auto()
    """Follows the number of workers."""
    DIVIDED = enum.auto()
    """Has been divided by a number of workers."""
    LAST_LR = enum.auto()
    """The optimizer's or schedule's present learning rate."""
    SCALED_LR = enum.auto()
    """Computed from the present learning rate."""
    MODEL = enum.auto()
    SHARDED = enum.auto()
    """Of which each rank holds a part: a model, an optimizer, or their state."""
    OPTIMIZER = enum.auto()
    SCHEDULER = enum.auto()
    LOADER = enum.auto()
    SAMPLER = enum.auto()
    TRAINING = enum.auto()
    """The live runtime's `Training`."""
    SHARE = enum.auto()
    """What its loop yields."""
    COUNTED = enum.auto()
    """True where a step counts: the result of `step`, `share.committed`."""
    SAVED = enum.auto()
    """What was read from a checkpoint."""
    STATE = enum.auto()
    """A `state_dict()`, or a mapping that holds one."""


TF_CONFIG: dict[str, Tag] = {
    **dict.fromkeys(("task", "index", "type"), Tag.RANK),
    **dict.fromkeys(("cluster", "worker", "chief"), Tag.WORLD),
}
"""What the parts of TensorFlow's TF_CONFIG tell, by key."""

TRAINING = ("kfp_volcano.elastic.runtime.Training", "kfp_volcano.elastic.runtime.training.Training")

_RANK_VARIABLES = re.compile(
    r"^(LOCAL_|GLOBAL_|NODE_|GROUP_)?RANK$|^SLURM_(PROCID|NODEID|LOCALID)$|^OMPI_COMM_WORLD_(LOCAL_)?RANK$|^PMIX?_RANK$"
    r"|^MV2_COMM_WORLD_RANK$|^VC_TASK_INDEX$|^VK_TASK_INDEX$|^JOB_COMPLETION_INDEX$|^KFP_VOLCANO_TASK_INDEX$"
    r"|^KFP_VOLCANO_POD(_IP)?$|^HOROVOD_(LOCAL_)?RANK$|^POD_NAME$|^HOSTNAME$"
)
_WORLD_VARIABLES = re.compile(
    r"^(LOCAL_|GROUP_)?WORLD_SIZE$|^N?NODES$|^NNODES$|^NUM_(WORKERS|NODES|REPLICAS|GPUS|PROCESSES)$|^SLURM_(NTASKS|NNODES|NPROCS)$"
    r"|^OMPI_COMM_WORLD_(LOCAL_)?SIZE$|^PMIX?_SIZE$|^VC_[A-Z]+_NUM$|^HOROVOD_(LOCAL_)?SIZE$|^WORKERS?(_COUNT)?$|^N_WORKERS$"
)

CALLS: dict[str, Tag] = {
    **dict.fromkeys(
        (
            "get_rank",
            "get_local_rank",
            "get_node_local_rank",
            "Get_rank",
            "get_ordinal",
            "get_node_rank",
            "process_index",
        ),
        Tag.RANK,
    ),
    **dict.fromkeys(("get_global_rank", "get_data_parallel_rank", "is_main_process", "is_master"), Tag.RANK),
    **dict.fromkeys(
        ("get_world_size", "Get_size", "xrt_world_size", "process_count", "get_data_parallel_world_size"), Tag.WORLD
    ),
    **dict.fromkeys(("device_count", "get_num_nodes", "cluster_resources"), Tag.WORLD),
    **dict.fromkeys(
        ("hvd.rank", "horovod.torch.rank", "horovod.tensorflow.rank", "horovod.tensorflow.keras.rank"), Tag.RANK
    ),
    **dict.fromkeys(
        ("hvd.size", "horovod.torch.size", "horovod.tensorflow.size", "horovod.tensorflow.keras.size"), Tag.WORLD
    ),
    **dict.fromkeys(("horovod.torch.local_rank", "horovod.tensorflow.local_rank"), Tag.RANK),
    **dict.fromkeys(("FSDP", "FullyShardedDataParallel", "fully_shard", "parallelize_module"), Tag.SHARDED | Tag.MODEL),
    **dict.fromkeys(
        ("FSDPStrategy", "DeepSpeedStrategy", "FullyShardedDataParallelPlugin", "DeepSpeedPlugin"), Tag.SHARDED
    ),
    "deepspeed.initialize": Tag.SHARDED | Tag.MODEL,
    "ZeroRedundancyOptimizer": Tag.SHARDED | Tag.OPTIMIZER,
    **dict.fromkeys(("distribute_tensor", "DTensor", "ShardedTensor"), Tag.SHARDED),
    **dict.fromkeys(("DataLoader", "StatefulDataLoader", "MultiEpochsDataLoader"), Tag.LOADER),
    **dict.fromkeys(("DistributedSampler", "StatefulDistributedSampler", "ElasticDistributedSampler"), Tag.SAMPLER),
    **dict.fromkeys(
        ("DistributedBatchSampler", "DistributedLengthGroupedSampler", "DistributedSamplerWrapper"), Tag.SAMPLER
    ),
    **dict.fromkeys(("get_last_lr", "get_lr"), Tag.LAST_LR),
    **dict.fromkeys(("torch.load", "load_checkpoint", "torch.distributed.checkpoint.load"), Tag.SAVED),
    "state_dict": Tag.STATE,
}
"""Functions and methods by their whole name, or the last word of it: what they return."""

ATTRIBUTES: dict[str, Tag] = {
    **dict.fromkeys(
        (
            "rank",
            "local_rank",
            "global_rank",
            "node_rank",
            "process_index",
            "local_process_index",
            "is_main_process",
            "is_local_main_process",
            "is_global_zero",
            "is_world_process_zero",
            "is_last_process",
            "replica_id_in_sync_group",
        ),
        Tag.RANK,
    ),
    **dict.fromkeys(
        ("world_size", "num_processes", "num_replicas_in_sync", "n_gpu", "num_nodes", "nnodes", "num_gpus", "ngpus"),
        Tag.WORLD,
    ),
}
"""Attributes of objects that are not followed, and keys of mappings."""

FIRST_RANK_DECORATORS = (
    "rank_zero_only",
    "on_main_process",
    "on_local_main_process",
    "main_process_only",
    "master_only",
)
"""Decorators under which a function runs on the first rank, or on one of each node."""

PARAMETERS: dict[str, Tag] = {
    **dict.fromkeys(("rank", "local_rank", "global_rank", "gpu_id", "local_gpu_rank"), Tag.RANK),
    **dict.fromkeys(
        ("world_size", "worldsize", "num_replicas", "nprocs", "n_gpus", "num_gpus", "ngpus_per_node"), Tag.WORLD
    ),
    **dict.fromkeys(("new_world_size", "old_world_size", "new_workers", "old_workers", "num_processes"), Tag.WORLD),
}
"""Parameters of functions whose callers may be elsewhere."""

LR_NAME = re.compile(r"(^|_)(lr|learning_?rate)s?($|_)", re.IGNORECASE)
"""Names that hold a learning rate."""

_OPTIMIZERS = re.compile(
    r"(^|\.)(SGD|Adam\w*|\w*Adam|RMSprop|Adagrad|Adadelta|Adafactor|LAMB|Lamb|Lion|LARS|Rprop|NAdam|RAdam|LBFGS|Muon)$"
)


def variable(name: str) -> Tag:
    """What an environment variable holds."""
    if name == "TF_CONFIG":
        return Tag.RANK | Tag.WORLD
    if _RANK_VARIABLES.search(name):
        return Tag.RANK
    return Tag.WORLD if _WORLD_VARIABLES.search(name) else Tag.NONE


def optimizer(name: str) -> bool:
    """Whether a constructor of that dotted name makes an optimizer."""
    return bool(_OPTIMIZERS.search(name)) and ".lr_scheduler." not in name


def scheduler(name: str) -> bool:
    """Whether a call of that dotted name makes a learning rate schedule that counts its calls."""
    last = name.rpartition(".")[2]
    return (
        ".lr_scheduler." in name
        or last.endswith(("LR", "WarmRestarts", "ReduceLROnPlateau"))
        or (last.startswith("get_") and "schedule" in last)
    )
