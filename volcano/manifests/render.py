"""Templates to manifests, and manifests to text for people.

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
    from collections.abc import Iterable, Mapping

    from jinja2 import Template

__all__ = ["manifest_yaml", "render"]

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


def manifest_yaml(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Manifests as YAML documents, keys in the order they have; every YAML reader takes each text for that text."""
    documents = (
        yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for manifest in manifests
    )
    return "---\n".join(documents)


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors, that also quotes what only other YAML readers take for a number or a boolean."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


_AMBIGUOUS = re.compile(r"[-+.]?[0-9].*|[yYnN]", re.DOTALL)
"""`1e-3` is text to PyYAML and a number to kubectl, `y` is text or true."""

_INVISIBLE = re.compile(r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What has to be escaped, line breaks of old among it, which YAML would turn into others."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _INVISIBLE.search(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    elif _AMBIGUOUS.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
