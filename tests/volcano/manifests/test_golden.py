# SPDX-License-Identifier: Apache-2.0
"""Specs beside the manifests they give, compared to the byte, and checked by Volcano's schema.

`UPDATE_GOLDEN=1` writes the manifests anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

GOLDEN = Path(__file__).parents[2] / "golden"
RUN = "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.spec.yaml")), ids=lambda path: path.name.split(".")[0])
def test_a_spec_gives_the_manifest_beside_it(path, strict_job):
    """What a spec is rendered to changes on purpose only."""
    job = training_job(parse(path.read_text(), source=path.name), source=path.name)
    start = job.workers.replicas.initial
    objects = manifests(job, name=job_name(job.name, RUN), run_id=RUN, step="submit", workers=start)
    golden = path.with_name(path.name.replace(".spec.", ".manifest."))
    if os.environ.get("UPDATE_GOLDEN"):
        assert not os.environ.get("CI"), "CI compares, it does not write"
        golden.write_text(manifest_yaml(objects))
    assert golden.read_text() == manifest_yaml(objects)
    assert list(yaml.safe_load_all(golden.read_text())) == objects
    for manifest in objects:
        if manifest["kind"] == "Job":
            strict_job.validate(manifest)
