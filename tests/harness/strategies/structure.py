# SPDX-License-Identifier: Apache-2.0
"""The structure of rendered objects, and whether a text in a document has changed it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import yaml

from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml
from strategies.edits import Edit, apply
from strategies.json_schema import Path, Schema, keys, texts

__all__ = ["HARMLESS", "Place", "harm", "places"]

HARMLESS = "harmless"
Objects = list[dict[str, Any]]
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Place:
    """Somewhere in a document where a text may stand, as a value or as a key."""

    def __init__(self, document: Any, path: Path, below: Schema | None = None) -> None:
        """`below`: the place is for a key, and its value has to be as this schema says."""
        self._document, self.path, self._below = document, path, below

    def holding(self, text: str) -> Any:
        """The document with that text at the place."""
        if self._below is None:
            return apply(self._document, [Edit(self.path, text)])
        value: Any = "text" if "string" in self._below.get("type", ()) else {"replicas": 1}
        return apply(self._document, [Edit((*self.path, text), value)])


def places(schema: Schema, document: Any, below: Path = ()) -> list[Place]:
    """Every place for a text that a schema knows in a document, or in what is `below` a path."""
    values = [Place(document, path) for path in texts(schema, document)]
    found = [*values, *(Place(document, path, rule) for path, rule in keys(schema, document))]
    return [each for each in found if each.path[: len(below)] == below]


def harm(place: Place, texts: Iterable[str], render: Callable[[Any], Objects | None]) -> str:
    """What texts do to the structure of what is rendered of the document, or to its YAML; empty where nothing."""
    plain = render(place.holding(HARMLESS))
    for text in texts if plain is not None else ():
        objects = render(place.holding(text)) if text else None  # an empty one may mean none
        if objects is None:
            continue
        if _shape(objects, text) != _shape(plain, HARMLESS):
            return f"{dotted(place.path)}: {text[:80]!r} changes the structure"
        if list(yaml.load_all(manifest_yaml(objects), Loader=_SAFE_LOADER)) != objects:
            return f"{dotted(place.path)}: {text[:80]!r} does not survive as YAML"
    return ""


def _shape(value: Any, text: str) -> Any:
    """Objects without their texts and their order (roles go by name): what is left is their structure."""
    if isinstance(value, dict):
        own = {text, f"hugepages-{text}", f"requests.{text}"}
        return {"key" if key in own else key: _shape(child, text) for key, child in value.items()}
    if isinstance(value, list):
        return sorted((_shape(item, text) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return "text" if isinstance(value, str) else value
