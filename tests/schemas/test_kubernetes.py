"""Parts of a spec in Kubernetes' own words are checked as Volcano's own definition of a Job checks them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from kfp_volcano.schemas.structure import load_schema

PUBLISHED = Path(__file__).parents[2] / "schemas/json/pod-template.v1.schema.json"
BOUNDS = {"int32": 2**31, "int64": 2**63}


def as_json_schema(rule):
    """A part of a CustomResourceDefinition as a JSON Schema that knows no unknown keys."""
    if "x-kubernetes-int-or-string" in rule:
        kept = {"type": ["integer", "string"]}
        return {**kept, "pattern": rule["pattern"]} if "pattern" in rule else kept
    kept = {key: rule[key] for key in ("type", "required", "pattern", "enum", "minLength", "maxLength") if key in rule}
    if rule.get("format") in BOUNDS:
        bound = BOUNDS[rule["format"]]
        kept |= {"minimum": -bound, "maximum": bound - 1}
    if "items" in rule:
        kept["items"] = as_json_schema(rule["items"])
    if "properties" in rule:
        kept["additionalProperties"] = False
        kept["properties"] = {key: as_json_schema(part) for key, part in rule["properties"].items()}
    elif "additionalProperties" in rule:
        kept["additionalProperties"] = as_json_schema(rule["additionalProperties"])
    return kept


@pytest.fixture(scope="module")
def template(shared):
    """The pod template of a Job's task in Volcano's CustomResourceDefinition."""
    file = shared / "volcano/crds/batch.volcano.sh_jobs.yaml"
    if not file.exists():
        pytest.skip(f"Volcano's CustomResourceDefinition of a Job is absent: {file}")
    definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]["template"]


def test_the_published_pod_template_is_that_of_volcano(template):
    """`UPDATE_GOLDEN=1` writes it anew, for another version of Volcano."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kfp-volcano:schema:pod-template:v1",
        "title": "pod template",
        "description": "The pod template of a task as the CustomResourceDefinition of Volcano 1.15.1 has it "
        "(Apache-2.0, The Volcano Authors), without unknown keys, which the API server would drop.",
        **as_json_schema(template),
    }
    if os.environ.get("UPDATE_GOLDEN"):
        assert not os.environ.get("CI"), "CI compares, it does not write"
        PUBLISHED.write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")
        load_schema.cache_clear()
    assert load_schema("pod-template.v1") == schema
