# SPDX-License-Identifier: Apache-2.0
"""The schemas that the model checks with are those of Volcano's CRDs."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_volcano.volcano.model.structural import GROUPS


@pytest.mark.parametrize("kind", GROUPS)
def test_schemas_are_the_crds(shared: Path, kind: str) -> None:
    """A kind's schema is its CRD's without the descriptions, and without the status where that has its own endpoint."""
    crd = yaml.safe_load((shared / "volcano" / "crds" / f"{GROUPS[kind]}_{kind.lower()}s.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema = _without_descriptions(version["schema"]["openAPIV3Schema"])
    if "status" in version.get("subresources", {}):
        del schema["properties"]["status"]
    kept = resources.files("kfp_volcano.volcano.model").joinpath("crds", f"{kind.lower()}.json")
    assert json.loads(kept.read_text()) == schema


def _without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_descriptions(child) for name, child in value.items()}
        if key == "properties"
        else _without_descriptions(value)
        for key, value in schema.items()
        if key != "description"
    }
