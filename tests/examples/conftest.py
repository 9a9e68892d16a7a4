# SPDX-License-Identifier: Apache-2.0
"""The examples on an embedded cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from example_job import ExampleJob
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACED = Path(__file__).with_name("paced.py")


@pytest.fixture
def train(root: Path, tmp_path: Path) -> Iterator[Callable[[str], ExampleJob]]:
    """Submit an example's spec to a cluster of its own; its program goes slowly until there is a file `enough`."""
    clusters: list[EmbeddedCluster] = []

    def start(name: str) -> ExampleJob:
        path = root / "pipelines" / "examples" / name
        text = path.read_text()
        assert "[python, " in text or " python, " in text
        slow = tmp_path / path.name
        slow.write_text(text.replace("python, ", f"python, {PACED}, /kfp-volcano/volume/enough, "))
        directory = tmp_path / f"cluster-{len(clusters)}"
        clusters.append(EmbeddedCluster(directory, workdir=path.parent))
        return ExampleJob(clusters[-1], directory, slow)

    yield start
    for cluster in clusters:
        cluster.shutdown(grace_s=0)
