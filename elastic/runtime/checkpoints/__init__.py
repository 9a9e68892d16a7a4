# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and the final model: whatever is there under its name is whole, or is found out.

A checkpoint is a folder `step-<steps>-<lineage>/` with the state and, written last, the manifest that makes it one
(`manifest`). Of a model that is sharded over a worker's processes each of these writes its pieces (`pieces`, `dcp`,
`together`). It lies on a volume or behind a URL (`store`). It is copied while the next step computes (`snapshot`) and
written while training goes on (`saver`); of those that are there the newest and the best stay (`retention`).
"""

from __future__ import annotations

from kfp_volcano.elastic.runtime.checkpoints.collection import Checkpoints
from kfp_volcano.elastic.runtime.checkpoints.final import Final, load_final
from kfp_volcano.elastic.runtime.checkpoints.manifest import Manifest
from kfp_volcano.elastic.runtime.checkpoints.retention import Best
from kfp_volcano.elastic.runtime.checkpoints.saver import Saver
from kfp_volcano.elastic.runtime.checkpoints.store import open_store
from kfp_volcano.elastic.runtime.checkpoints.together import Together

__all__ = ["Best", "Checkpoints", "Final", "Manifest", "Saver", "Together", "load_final", "open_store"]
