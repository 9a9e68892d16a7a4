# SPDX-License-Identifier: Apache-2.0
"""What a command finds in its environment of the generation that it is started for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.generations import Generation, Member

__all__ = ["environment"]

_EVALUATOR = "evaluator"
"""Stands beside TensorFlow's cluster, not in it."""


def environment(generation: Generation, member: Member, framework: str) -> Mapping[str, str]:
    """The variables of a member of the generation, on top of the pod's own.

    For each framework the number, the workers' hosts, and the pod's rank; for PyTorch torchrun's settings, each option
    as `PET_<OPTION>`; for TensorFlow `TF_CONFIG` (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG).
    MPI's launcher makes its hostfile of the hosts.
    """
    workers = generation.of(names.WORKER)
    rank = generation.position(member.pod, member.incarnation) or 0
    common = {
        names.ENV_GENERATION: str(generation.number),
        names.ENV_WORKERS: str(len(workers)),
        names.ENV_HOSTS: ",".join(f"{_host(each)}:{each.procs}" for each in workers),
        names.ENV_RANK: str(rank),
    }
    match framework:
        case "pytorch" if member.role == names.WORKER:
            return {**common, **_torchrun(generation, member, workers[0])}
        case "tensorflow":
            return {**common, **_tensorflow(generation, member, rank)}
    return common


def _torchrun(generation: Generation, member: Member, first: Member) -> dict[str, str]:
    """A rendezvous of exactly these workers, at the first of them; no other generation or Job can meet it."""
    return {
        "PET_NNODES": str(len(generation.of(names.WORKER))),
        "PET_RDZV_ENDPOINT": f"{_host(first)}:{first.port}",
        "PET_RDZV_ID": f"{first.pod}-{first.incarnation}-{generation.number}",
        "PET_RDZV_CONF": f"is_host={int(member == first)}",
        "PET_LOCAL_ADDR": member.host,
    }


def _tensorflow(generation: Generation, member: Member, rank: int) -> dict[str, str]:
    """TF_CONFIG; empty where the pod is alone, as MirroredStrategy wants it."""
    roles = dict.fromkeys(each.role for each in generation.members)
    cluster = {
        role: [f"{_host(each)}:{each.port}" for each in generation.of(role)] for role in roles if role != _EVALUATOR
    }
    if len(generation.members) == 1:
        return {"TF_CONFIG": "{}"}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": member.role, "index": rank}})}


def _host(member: Member) -> str:
    return f"[{member.host}]" if ":" in member.host else member.host
