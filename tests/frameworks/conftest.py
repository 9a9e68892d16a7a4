# SPDX-License-Identifier: Apache-2.0
"""The documented examples on an embedded cluster, seen as a user of a cluster sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from example_job import ExampleJob
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def train(root: Path, tmp_path: Path) -> Iterator[Callable[..., ExampleJob]]:
    """Submit an example by its name, or a spec by its text, to a cluster of its own, in the examples' folder."""
    examples = root / "pipelines" / "examples" / "frameworks"
    clusters: list[Any] = []

    def start(name: str, text: str = "") -> ExampleJob:
        spec = examples / f"{name}.yaml"
        if text:
            spec = tmp_path / spec.name
            spec.write_text(text)
        directory = tmp_path / f"cluster-{len(clusters)}"
        clusters.append(EmbeddedCluster(directory, workdir=examples))
        return ExampleJob(clusters[-1], directory, spec)

    yield start
    for cluster in clusters:
        cluster.shutdown(grace_s=0)
