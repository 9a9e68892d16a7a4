# SPDX-License-Identifier: Apache-2.0
"""What deviates from a schema, in the words of the person who wrote the YAML: what is wrong, what would be right."""

from __future__ import annotations

import difflib
import json
import shlex
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem
from kfp_volcano.schemas.structure import Finding, child_rule, deviations, normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kfp_volcano.schemas.structure import Deviation, Path, Schema

__all__ = ["by_place", "dotted", "examine", "explain", "problems", "shown"]

_LONGEST_SHOWN = 60
_WANTED = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_FOUND = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true/false",
    int: "a whole number",
    float: "a number",
    type(None): "nothing",
}


def dotted(path: Path) -> str:
    """A path as people write it: `spec.roles.worker.replicas.sizes[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("-", "_").isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: Any) -> str:
    """A value as a message quotes it: JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=lambda _: "…")
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def examine(value: Any, schema: Schema, *, lenient_numbers: bool = False) -> tuple[Any, list[Finding]]:
    """A document in JSON's own types (`normalise`), and what its schema finds wrong with it, in words (`explain`)."""
    plain, found = normalise(value, schema, lenient_numbers=lenient_numbers)
    return plain, [*found, *(each for one in deviations(plain, schema) for each in explain(one, schema))]


def by_place(found: Iterable[Finding]) -> dict[Path, Finding]:
    """The first finding at each place: what is of the wrong type is no wrong choice besides."""
    first: dict[Path, Finding] = {}
    for each in found:
        first.setdefault(each.path, each)
    return first


def problems(found: Iterable[Finding], source: str) -> list[Problem]:
    """Findings as a SpecError lists them; one about the whole is about its `source`."""
    return [Problem(dotted(path) or source, message, remedy) for path, message, remedy in found]


def explain(deviation: Deviation, root: Schema) -> Iterator[Finding]:
    """The findings in one deviation from the schema `root`."""
    path, keyword, limit, found, rule, message = deviation
    match keyword:
        case "additionalProperties":
            known = list(rule["properties"])
            yield from (_unknown_key((*path, key), known) for key in found if key not in known)
        case "required":
            # One deviation for each missing key, which is named in the message alone.
            key = next(key for key in limit if message.startswith(repr(key)))
            yield Finding((*path, key), "is missing", _description(child_rule(rule, key, root)))
        case "type":
            wanted = " or ".join(_WANTED[name] for name in ([limit] if isinstance(limit, str) else limit))
            message = f"should be {wanted}, but is {_FOUND[type(found)]}: {shown(found)}"
            yield Finding(path, message, _retyped(found, rule))
        case "enum":
            yield _not_among(path, found, limit)
        case "const":
            yield Finding(path, f"is {shown(found)}", f"this version of kfp-volcano reads {limit}")
        case "pattern":
            yield Finding(path, f"{shown(found)} is not a valid {rule.get('title', 'value')}", _description(rule))
        case "minItems" | "minLength" | "minProperties":
            yield Finding(path, "is empty", _description(rule))
        case _:
            yield Finding(path, *_out_of_bounds(keyword, limit, found))


def _out_of_bounds(keyword: str, limit: Any, found: Any) -> tuple[str, str]:
    match keyword:
        case "minimum":
            return f"{shown(found)} is too small", f"at least {limit}"
        case "exclusiveMinimum":
            return f"{shown(found)} is too small", f"more than {limit}"
        case "maximum":
            return f"{shown(found)} is too large", f"at most {limit}"
        case "maxItems":
            return f"has {len(found)} entries", f"at most {limit}"
        case "maxLength":
            return f"has {len(found)} characters", f"at most {limit}"
    raise AssertionError(f"there are no words for the keyword {keyword}")


def _description(rule: Schema) -> str:
    """The first sentence of a schema's description, and its examples."""
    examples = ", ".join(
        example if isinstance(example, str) else json.dumps(example) for example in rule.get("examples", ())
    )
    parts = [rule.get("description", "").split(". ")[0].rstrip("."), f"for example {examples}" if examples else ""]
    return "; ".join(part for part in parts if part)


def _unknown_key(path: Path, known: Sequence[str]) -> Finding:
    return Finding(path, "is an unknown key", _nearest(str(path[-1]), known))


def _not_among(path: Path, found: Any, choices: Sequence[str | None]) -> Finding:
    allowed = [each for each in choices if each is not None]  # in a patch, null takes the key out
    return Finding(path, f"there is no {shown(found)}", _nearest(str(found), allowed))


def _nearest(word: str, known: Sequence[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]}?" if close else _choice(known)


def _choice(allowed: Sequence[str]) -> str:
    return f"{allowed[0]} is what there is" if len(allowed) == 1 else f"there is {', '.join(allowed)}"


def _retyped(found: Any, rule: Schema) -> str:
    """How the value would be written in the type that was wanted."""
    wanted = rule["type"]
    if "string" in wanted and isinstance(found, bool | int | float):
        hint = f'put it in quotes: "{shown(found)}"'
        return f"{hint}; YAML reads bare yes, no, on, off as true/false" if isinstance(found, bool) else hint
    if "integer" in wanted and isinstance(found, str) and found.isdecimal():
        return f"without quotes: {found}"
    if wanted == "array" and isinstance(found, str):
        try:
            return f"write [{', '.join(map(json.dumps, shlex.split(found)))}]"
        except ValueError:  # unbalanced quotes: no better guess than the description
            pass
    return _description(rule)
