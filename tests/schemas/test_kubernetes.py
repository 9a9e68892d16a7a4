# SPDX-License-Identifier: Apache-2.0
"""Parts of a spec in Kubernetes' own words are checked as Volcano's own definition of a Job checks them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from kfp_volcano.schemas.structure import load_schema
from published.pod_template import published

PUBLISHED = Path(__file__).parents[2] / "schemas/json/pod-template.v1.schema.json"


@pytest.fixture(scope="module")
def template(shared):
    """The pod template of a Job's task in Volcano's CustomResourceDefinition."""
    file = shared / "volcano/crds/batch.volcano.sh_jobs.yaml"
    if not file.exists():
        pytest.skip(f"Volcano's CustomResourceDefinition of a Job is absent: {file}")
    definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]["template"]


def test_the_published_pod_template_is_that_of_volcano_and_kubernetes(template):
    """`UPDATE_GOLDEN=1` writes it anew, for another version of Volcano."""
    schema = published(template)
    if os.environ.get("UPDATE_GOLDEN"):
        assert not os.environ.get("CI"), "CI compares, it does not write"
        PUBLISHED.write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")
        load_schema.cache_clear()
    assert load_schema("pod-template.v1") == schema
