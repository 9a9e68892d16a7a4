# SPDX-License-Identifier: Apache-2.0
"""Names, labels and annotations: what the API server asks of every object's metadata.

Sources: k8s.io/apimachinery 0.35, pkg/api/validation/objectmeta.go and pkg/util/validation/validation.go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import key_faults, subdomain_faults, value_faults
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["metadata_faults"]

_MOST_ANNOTATIONS = 256 * 1024


def metadata_faults(metadata: Any) -> Iterator[Fault]:
    """What the API server refuses in an object's metadata, which may be anything."""
    if not isinstance(metadata, dict):
        yield Fault("metadata.name", "Required value: name or generateName is required", wrong_type=True)
        return
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        wrong_type = name is not None and not isinstance(name, str)
        yield Fault("metadata.name", "Required value: name or generateName is required", wrong_type)
    else:
        for sentence in subdomain_faults(name):
            yield Fault("metadata.name", f"Invalid value: {json.dumps(name)}: {sentence}")
    for field in ("labels", "annotations"):
        entries = {} if metadata.get(field) is None else metadata[field]
        if not isinstance(entries, dict) or not all(isinstance(value, str | None) for value in entries.values()):
            yield Fault(f"metadata.{field}", "cannot be read: texts are wanted", wrong_type=True)
        else:
            yield from _entries(field, {key: value or "" for key, value in entries.items()})


def _entries(field: str, entries: Mapping[str, str]) -> Iterator[Fault]:
    at = f"metadata.{field}"
    for key, value in entries.items():
        # Annotations may be written in capitals for the sake of old ones.
        for sentence in key_faults(key.lower() if field == "annotations" else key):
            yield Fault(at, f"Invalid value: {json.dumps(key)}: {sentence}")
        for sentence in value_faults(value) if field == "labels" else ():
            yield Fault(at, f"Invalid value: {json.dumps(value)}: {sentence}")
    if (
        field == "annotations"
        and sum(len(f"{key}{value}".encode()) for key, value in entries.items()) > _MOST_ANNOTATIONS
    ):
        yield Fault(at, f"Too long: may not be more than {_MOST_ANNOTATIONS} bytes")
