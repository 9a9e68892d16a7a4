# SPDX-License-Identifier: Apache-2.0
"""Text to mapping: YAML, or JSON, with what is wrong in the text told by line."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["parse", "parse_all"]


def parse(text_or_mapping: str | Mapping[str, Any], *, source: str = "spec") -> Mapping[str, Any]:
    """The mapping in a YAML or JSON text; a mapping is returned as it is.

    Raises SpecError (with line and column) where the text is neither, repeats a key, or is no mapping.
    """
    if isinstance(text_or_mapping, Mapping):
        return text_or_mapping
    value = _told(_load, text_or_mapping, source)
    if value is None:
        raise _empty(source)
    return _mapping(value, source)


def parse_all(text: str, *, source: str = "spec") -> list[Mapping[str, Any]]:
    """The mappings in a YAML text of one or several documents (`---`), or in a JSON text.

    Raises SpecError (with line and column) where the text is neither, repeats a key, or holds no document or one that
    is no mapping.
    """
    values = [value for value in _told(_load_all, text, source) if value is not None]
    if not values:
        raise _empty(source)
    return [_mapping(value, source) for value in values]


def _told(load: Callable[[str], Any], text: str, source: str) -> Any:
    """What is loaded from a text; what is wrong with the text is told as a SpecError."""
    try:
        return load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = str(error.problem or error.context)
        raise SpecError([Problem(source, where + what, _remedy(what, text))], source=source) from error
    except yaml.reader.ReaderError as error:
        raise SpecError([Problem(source, f"position {error.position}: {error.reason}")], source=source) from error
    except RecursionError as error:
        raise SpecError([Problem(source, "is nested too deeply")], source=source) from error
    except ValueError as error:
        raise SpecError([Problem(source, str(error))], source=source) from error


def _empty(source: str) -> SpecError:
    return SpecError([Problem(source, "is empty", "a spec begins with apiVersion: kfp-volcano/v1")], source=source)


def _mapping(value: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        what = "a list" if isinstance(value, list) else "a single value"
        raise SpecError([Problem(source, f"should be a mapping, but is {what}", "key: value lines")], source=source)
    return value


def _load(text: str) -> Any:
    found = None
    for value, mark in _documents(text):
        if found is not None and value is not None:
            raise yaml.composer.ComposerError(problem="another document begins here", problem_mark=mark)
        found = value if found is None else found
    return found


def _load_all(text: str) -> list[Any]:
    return [value for value, _ in _documents(text)]


def _documents(text: str) -> Iterator[tuple[Any, yaml.Mark | None]]:
    """Each document of a text, and where it begins."""
    # YAML reads nearly all JSON, but takes the two halves of "\ud83d\ude00" for two characters.
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text, object_pairs_hook=_unique, parse_int=_whole)
        except json.JSONDecodeError:
            pass  # a flow mapping, perhaps
        else:
            yield value, None
            return
    loader = _Loader(text)
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            yield loader.construct_document(node), node.start_mark
    finally:
        loader.dispose()


_REMEDIES = {
    r"character '\\t'": "indent with spaces",
    r"mapping values are not allowed": "text that holds ': ' stands in quotes, and keys of one mapping in one column",
    r"could not find expected ':'": "KEY: VALUE, with a space after the colon",
    r"constructor for the tag": "leave the tag out",
    r"unconstructable recursive": "a value cannot be part of itself",
    r"undefined alias": "text that begins with * stands in quotes; an alias comes after its anchor",
    r"another document": "one document a file",
    r"found unexpected end of stream": "close the quotes or brackets",
}
"""What PyYAML says, and what to do about it."""


def _remedy(problem: str, text: str) -> str:
    if "{{" in text:
        return "it is a template: render it first (helm template …)"
    return next((remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, problem)), "")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"holds a number of {len(digits)} digits")
    return int(digits)


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

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what is merged (`<<`), each key once: PyYAML keeps all, and merges of merges multiply them."""
        super().flatten_mapping(node)
        last = {key.value: index for index, (key, _) in enumerate(node.value) if isinstance(key, yaml.ScalarNode)}
        node.value = [
            pair
            for index, pair in enumerate(node.value)
            if not isinstance(pair[0], yaml.ScalarNode) or last[pair[0].value] == index
        ]

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Begin a list or mapping in brackets, unless there are too many open: PyYAML takes its time for each."""
        if self.flow_level > _MOST_BRACKETS:
            raise yaml.scanner.ScannerError(problem="is nested too deeply", problem_mark=self.get_mark())
        super().fetch_flow_collection_start(token)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A whole number, if it is one that anybody means."""
        if len(node.value) > _MOST_DIGITS:
            problem = f"a number of {len(node.value)} digits"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        number: int = super().construct_yaml_int(node)
        return number


_MOST_BRACKETS = 100
_MOST_DIGITS = 1000
_MERGE = "tag:yaml.org,2002:merge"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_TIME = r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"

_Loader.add_constructor(_INT, _Loader.construct_yaml_int)
# A date is text here, as it is in JSON, and so is 12:30, which YAML 1.1 takes for a number on the base of 60.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(rf"(?!{_TIME}$)(?:{pattern.pattern})", pattern.flags) if tag in (_INT, _FLOAT) else pattern)
        for tag, pattern in resolvers
        if tag != _TIMESTAMP
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
