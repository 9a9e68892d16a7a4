# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster, where a trace does not tell them: as a user writes them, or as many as its jobs need."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.scenario import Node
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FULL", "NODES_REMEDY", "largest_node", "nodes_for", "parse_nodes"]

NODES_REMEDY = "NODESxGPUS[:CLASS], such as 16x8, or 8x8:a100,16x4:t4"
FULL = 0.8
"""How full a cluster is on average that is made up for a trace."""
_PART = re.compile(r"(?P<count>[0-9]{1,6})x(?P<gpus>[0-9]{1,4})(?::(?P<gpu_class>[A-Za-z0-9][A-Za-z0-9._-]*))?")


def parse_nodes(text: str, *, source: str = "--nodes") -> tuple[Node, ...]:
    """Nodes from text such as `16x8` or `8x8:a100,16x4:t4`. Raises SpecError with every part that is none."""
    nodes: list[Node] = []
    wrong: list[Problem] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or not int(match["count"]) or not int(match["gpus"]):
            wrong.append(Problem(source, f"{part.strip()!r} are no nodes", NODES_REMEDY))
            continue
        kind = match["gpu_class"] or ""
        stem = f"node-{kind.lower()}-" if kind else "node-"
        first = sum(node.gpu_class == kind for node in nodes)
        nodes += [
            Node(name=f"{stem}{first + index}", gpus=int(match["gpus"]), gpu_class=kind)
            for index in range(int(match["count"]))
        ]
    if wrong:
        raise SpecError(wrong, source=source)
    return tuple(nodes)


def nodes_for(gpu_s: float, span_s: float, largest: int, gpus_per_node: int) -> tuple[Node, ...]:
    """As few nodes as hold the largest job, and are `FULL` on average with so many GPU-seconds in such a span."""
    busy = gpu_s / span_s / FULL if span_s > 0 else 0.0
    count = max(1, math.ceil(busy / gpus_per_node), math.ceil(largest / gpus_per_node))
    return tuple(Node(name=f"node-{index}", gpus=gpus_per_node) for index in range(count))


def largest_node(nodes: Iterable[Node]) -> int:
    """GPUs of the largest node."""
    return max((node.gpus for node in nodes), default=1)
