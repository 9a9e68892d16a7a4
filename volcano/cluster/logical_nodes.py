# SPDX-License-Identifier: Apache-2.0
"""The nodes of the embedded cluster: names with as many GPUs as one likes, whole or shared.

cpu and memory are as good as unlimited. Nodes whose GPUs are shared look as Volcano's vGPU device plugin leaves them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.model.cards import REGISTER
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["NodeGroup", "logical_nodes", "parse_nodes"]

_GROUP = re.compile(r"([1-9][0-9]{0,4})x([0-9]{1,4})(?:@([1-9][0-9]*(?:Mi|Gi)))?")
_MIB = 2**20 * 1000
_SHARES = 10
"""Shares that a card may be cut into: the device plugin's default."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind."""

    count: int
    gpus: int
    memory: int = 0
    """MiB of each GPU, where pods share them; 0 where GPUs are whole."""


def parse_nodes(text: str) -> list[NodeGroup]:
    """Groups of nodes from `NODESxGPUS,NODESxGPUS@MEMORY…`; with a memory the GPUs are shared. Raises SpecError."""
    groups = []
    for part in text.split(","):
        match = _GROUP.fullmatch(part)
        shared = match is not None and match[3] is not None
        if match is None or (shared and match[2] == "0"):
            wanted = "NODESxGPUS such as 2x4, or 2x4,1x2@24Gi with shared GPUs of 24 GiB"
            raise SpecError(f"expected {wanted}, found {text!r}", source="nodes")
        memory = parse_quantity(match[3]) // _MIB if shared else 0
        groups.append(NodeGroup(int(match[1]), int(match[2]), memory))
    return groups


def logical_nodes(groups: Sequence[NodeGroup]) -> Iterator[Manifest]:
    """The nodes of these groups, numbered through."""
    kinds = [group for group in groups for _ in range(group.count)]
    for number, group in enumerate(kinds):
        room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
        if not group.memory:
            yield _node(f"node-{number}", {**room, names.GPU: str(group.gpus)}, {})
            continue
        shares = {
            names.VGPU_NUMBER: str(_SHARES * group.gpus),
            names.VGPU_MEMORY: str(group.memory * group.gpus),
            names.VGPU_CORES: str(100 * group.gpus),
        }
        cards = (
            f"GPU-{number}-{card},{_SHARES},{group.memory},NVIDIA-Logical,true,hami-core:" for card in range(group.gpus)
        )
        yield _node(f"node-{number}", {**room, **shares}, {REGISTER: "".join(cards)})


def _node(name: str, room: Mapping[str, str], annotations: Mapping[str, str]) -> Manifest:
    labels = {"kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": dict(annotations)},
        "spec": {},
        "status": {
            "capacity": dict(room),
            "allocatable": dict(room),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
