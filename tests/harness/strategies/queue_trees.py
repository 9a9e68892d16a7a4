# SPDX-License-Identifier: Apache-2.0
"""QueueTrees as users write them: good ones, changed in any field that the published schema has."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from kfp_volcano.schemas.queue_validation import build
from kfp_volcano.schemas.structure import load_schema
from kfp_volcano.volcano.manifests.queues import manifests
from strategies.edits import Edit, Fields, edits, lots
from strategies.json_schema import places

__all__ = ["QUEUE_SCHEMA", "TREE_FIELDS", "forced_queues", "queue_trees", "tree_examples"]

QUEUE_SCHEMA = load_schema("queue-tree.v1")
_GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@cache
def tree_examples() -> list[dict[str, Any]]:
    """Good QueueTrees, of each plugin."""
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(_GOLDEN.glob("*.tree.yaml"))]


TREE_FIELDS = Fields(
    QUEUE_SCHEMA, [sorted({place.field for tree in tree_examples() for place in places(QUEUE_SCHEMA, tree)} - {()})]
)


@st.composite
def queue_trees(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit]]:
    """A good QueueTree, and changes to it that may leave it good or not."""
    example = draw(lots()).choice(tree_examples())
    return example, draw(edits(TREE_FIELDS, example))


def forced_queues(tree: Any) -> list[dict[str, Any]] | None:
    """The objects of a tree that was never checked; None where none can be made of it at all."""
    try:
        return manifests(build(tree))
    except Exception:  # noqa: BLE001 # a tree of any shape raises anything
        return None
