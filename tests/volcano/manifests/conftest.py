from __future__ import annotations

import pytest
import yaml


@pytest.fixture(scope="session")
def job_crd(shared):
    """The schema that Volcano's CustomResourceDefinition has for a Job."""
    file = shared / "volcano/crds/batch.volcano.sh_jobs.yaml"
    if not file.exists():
        pytest.skip(f"Volcano's CustomResourceDefinition of a Job is absent: {file}")
    definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
