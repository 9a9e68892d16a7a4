"""Templates to manifests.

A value enters a template by `| tojson` only, and the text is parsed at once: no value can change a manifest's
structure, and from here on a manifest is a dict.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

__all__ = ["render"]

_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that a template makes of `values`. A name the template uses and `values` lacks is an error."""
    text = _template(template).render(values)
    manifest: dict[str, Any] = yaml.load(text, Loader=_SafeLoader)  # noqa: S506  # safe, in C where libyaml is there
    return manifest


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("kfp_volcano.volcano.manifests"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # YAML, not HTML; tojson does the quoting
    )
    environment.policies["json.dumps_function"] = _quoted
    return environment.get_template(name)


def _quoted(value: Any, **_: Any) -> str:
    r"""JSON that YAML reads as the same value.

    YAML takes JSON's `\ud83d\ude00` for two characters, and refuses some that JSON leaves bare, e.g. U+0085.
    """
    if isinstance(value, Undefined):
        str(value)  # raises, and says which name is missing; json would only say that it cannot write it
    return re.sub(r"[^\x20-\x7e]", lambda match: f"\\U{ord(match[0]):08x}", json.dumps(value, ensure_ascii=False))
