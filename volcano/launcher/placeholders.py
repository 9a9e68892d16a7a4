# SPDX-License-Identifier: Apache-2.0
"""KFP's placeholders in a component's command, filled in as KFP's launcher does. Pure.

The rules are those of kubeflow/pipelines, backend/src/v2/component/launcher_v2.go (`getPlaceholders`) and
backend/src/v2/driver/resolve.go (`Concat`, `IfPresent`): https://github.com/kubeflow/pipelines.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.quantities import quantity_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["filled_in", "unknown_placeholders"]

_PLACEHOLDER = re.compile(
    r"\{\{\$(?:"
    r"\.inputs\.parameters\['(?P<parameter>[^']+)'\]"
    r"|\.outputs\.parameters\['(?P<output>[^']+)'\]\.output_file"
    r"|\.(?P<side>inputs|outputs)\.artifacts\['(?P<artifact>[^']+)'\]"
    r"\.(?P<what>uri|path|metadata)(?:\['(?P<key>[^']+)'\])?"
    r")?\}\}"
)
_ANY = re.compile(r"\{\{\$.*?\}\}")


def filled_in(words: Sequence[str], executor_input: Mapping[str, Any]) -> list[str]:
    """A command with its placeholders filled in.

    Args:
        words: As they stand in a pipeline: texts, some of them the JSON of a `Concat` or an `IfPresent`.
        executor_input: KFP's message of what a step is given (`ml_pipelines.ExecutorInput`), where `uri` is the path.
    """
    given = executor_input.get("inputs", {})
    present = {*_present(given.get("parameterValues", {})), *_present(given.get("artifacts", {}))}
    return [_text(part, executor_input) for word in words for part in _chosen(_structure(word), present)]


def unknown_placeholders(words: Sequence[str]) -> list[str]:
    """The placeholders that nobody fills in within a container's command, neither KFP nor `filled_in`."""
    return [found for word in words for found in _ANY.findall(word) if not _PLACEHOLDER.fullmatch(found)]


def _present(values: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if value is not None]


def _structure(word: str) -> Any:
    return json.loads(word) if word.startswith(('{"Concat": ', '{"IfPresent": ')) else word


def _chosen(node: Any, present: set[str]) -> Iterator[str]:
    """The words that a structure comes to for the inputs that are there."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for each in node:
            yield from _chosen(each, present)
    elif "Concat" in node:
        yield "".join(_chosen(node["Concat"], present))
    else:
        condition = node["IfPresent"]
        branch = condition["Then"] if condition["InputName"] in present else condition.get("Else")
        yield from _chosen([] if branch is None else branch, present)


def _text(word: str, executor_input: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda match: _value(match, executor_input), word)


def _value(match: re.Match[str], executor_input: Mapping[str, Any]) -> str:
    part = match.groupdict()
    inputs, outputs = executor_input.get("inputs", {}), executor_input.get("outputs", {})
    if part["parameter"]:
        return _written(inputs.get("parameterValues", {}).get(part["parameter"]))
    if part["output"]:
        return str(outputs["parameters"][part["output"]]["outputFile"])
    if part["artifact"]:
        side = inputs if part["side"] == "inputs" else outputs
        artifacts = side.get("artifacts", {}).get(part["artifact"], {}).get("artifacts") or [{}]
        if part["what"] != "metadata":
            return str(artifacts[0].get("uri", ""))
        metadata = artifacts[0].get("metadata", {})
        return _written(metadata.get(part["key"]) if part["key"] else metadata)
    return json.dumps(executor_input, ensure_ascii=False)


def _written(value: Any) -> str:
    """A value as KFP writes it into a command."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return quantity_text(value).removesuffix(".0")
    return "" if value is None else json.dumps(value, ensure_ascii=False)
