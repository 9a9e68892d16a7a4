"""Names, labels and annotations: what the API server asks of every object's metadata.

Sources: k8s.io/apimachinery 0.35, pkg/api/validation/objectmeta.go and pkg/util/validation/validation.go.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["is_qualified_name", "is_subdomain", "metadata_faults"]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_NAME = 253
_LONGEST_PART = 63
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
    elif not is_subdomain(name):
        words = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
        )
        yield Fault(
            "metadata.name", f"Invalid value: {json.dumps(name)}: {words} start and end with an alphanumeric character"
        )
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
        if not is_qualified_name(key.lower() if field == "annotations" else key):
            yield Fault(at, f"Invalid value: {json.dumps(key)}: {_KEY}")
        if field == "labels" and value and not _is_part(value):
            yield Fault(at, f"Invalid value: {json.dumps(value)}: {_VALUE}")
    if (
        field == "annotations"
        and sum(len(f"{key}{value}".encode()) for key, value in entries.items()) > _MOST_ANNOTATIONS
    ):
        yield Fault(at, f"Too long: may not be more than {_MOST_ANNOTATIONS} bytes")


_KEY = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with one"
_VALUE = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"


def is_qualified_name(text: str) -> bool:
    """Whether a text is a name of up to 63 characters, perhaps after a DNS subdomain and `/`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_subdomain(prefix)) and _is_part(name)


def is_subdomain(text: str) -> bool:
    """Whether a text is a DNS subdomain of up to 253 characters."""
    return len(text) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(text) is not None


def _is_part(text: str) -> bool:
    return len(text) <= _LONGEST_PART and _NAME_PART.fullmatch(text) is not None
