# SPDX-License-Identifier: Apache-2.0
"""Templates to manifests.

A template is JSON in which a value stands by `| tojson` only, and its text is parsed at once: no value can change a
manifest's structure, and from here on a manifest is a dict.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

__all__ = ["render"]


def render(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that a template makes of `values`. A name the template uses and `values` lacks is an error."""
    manifest: dict[str, Any] = json.loads(_template(template).render(values))
    return manifest


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("kfp_volcano.volcano.manifests"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # JSON, not HTML; tojson does the quoting
    )
    environment.filters["tojson"] = _quoted
    return environment.get_template(name)


def _quoted(value: Any) -> str:
    if isinstance(value, Undefined):
        str(value)  # raises, and says which name is missing; json would only say that it cannot write it
    return json.dumps(value)
