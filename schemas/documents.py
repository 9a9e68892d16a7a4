"""Text to mapping: YAML, or JSON, with what is wrong in the text told by line."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from kfp_volcano.errors import Problem, SpecError

__all__ = ["parse"]


def parse(text_or_mapping: str | Mapping[str, Any], *, source: str = "spec") -> Mapping[str, Any]:
    """The mapping in a YAML or JSON text; a mapping is returned as it is.

    Raises SpecError (with line and column) where the text is neither, repeats a key, or is no mapping.
    """
    if isinstance(text_or_mapping, Mapping):
        return text_or_mapping
    try:
        value = _load(text_or_mapping)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SpecError([Problem(source, where + str(error.problem or error.context))], source=source) from error
    except yaml.reader.ReaderError as error:
        raise SpecError([Problem(source, f"position {error.position}: {error.reason}")], source=source) from error
    except RecursionError as error:
        raise SpecError([Problem(source, "is nested too deeply")], source=source) from error
    except ValueError as error:
        raise SpecError([Problem(source, str(error))], source=source) from error
    if value is None:
        raise SpecError([Problem(source, "is empty", "a spec begins with apiVersion: kfp-volcano/v1")], source=source)
    if not isinstance(value, Mapping):
        what = "a list" if isinstance(value, list) else "a single value"
        raise SpecError([Problem(source, f"should be a mapping, but is {what}", "key: value lines")], source=source)
    return value


def _load(text: str) -> Any:
    # YAML reads nearly all JSON, but takes the two halves of "\ud83d\ude00" for two characters.
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError:
            pass  # a flow mapping, perhaps
    return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return value


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice and a value that contains itself."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # at once, not later: only so does PyYAML notice that a value contains itself

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  # PyYAML's signature
        written = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in written:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                written.add(key.value)
        return super().construct_mapping(node, deep=deep)


_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"

# A date is text here, as it is in JSON.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
