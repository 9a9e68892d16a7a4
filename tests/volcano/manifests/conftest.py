# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import yaml
from jsonschema import Draft202012Validator


@pytest.fixture(scope="session")
def job_crd(shared):
    """The schema that Volcano's CustomResourceDefinition has for a Job."""
    file = shared / "volcano/crds/batch.volcano.sh_jobs.yaml"
    if not file.exists():
        pytest.skip(f"Volcano's CustomResourceDefinition of a Job is absent: {file}")
    definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.fixture(scope="session")
def strict_job(job_crd):
    """Volcano's schema of a Job, strict: the API server would drop an unknown key without a word."""

    def strict(schema):
        if isinstance(schema, list):
            return [strict(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        closed = {key: strict(part) for key, part in schema.items()}
        if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
            closed.setdefault("additionalProperties", False)
        return closed

    return Draft202012Validator(strict(job_crd))
