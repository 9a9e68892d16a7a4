# SPDX-License-Identifier: Apache-2.0
"""The description of KFP's API that `kfp_server_api` carries, as values: operations, and the types of what they take.

The package is generated from KFP's OpenAPI document and does not ship it. Its models hold their part as data; the
operations' part is got by calling each method with a client that records what would be sent.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import kfp_server_api

PARAMETER = re.compile(r":param (\w+):")
TYPE = re.compile(r":type (\w+): (\S+(?: \S+)?)$", re.MULTILINE)
OF_CLIENT = {"async_req", "_return_http_data_only", "_preload_content", "_request_timeout"}


@dataclass(frozen=True)
class Operation:
    """One thing that the API does."""

    name: str
    method: str
    path: re.Pattern[str]
    query: dict[str, str]
    """Types by name."""
    body: str | None
    files: frozenset[str]
    answer: str | None


class _Recorder:
    """In place of an ApiClient: what a method would send."""

    client_side_validation = False

    def select_header_accept(self, accepts: list[str]) -> str:
        return accepts[0]

    select_header_content_type = select_header_accept

    def call_api(self, path: str, method: str, path_params: Any, query: Any, _headers: Any, **rest: Any) -> Any:
        return path, method, path_params, query, rest


def operations() -> list[Operation]:
    """All of them."""
    found = []
    for name, api in vars(kfp_server_api).items():
        if not name.endswith("Api") or not isinstance(api, type):
            continue
        for method, function in vars(api).items():
            if method.endswith("_with_http_info"):
                found.append(_operation(api(_Recorder()), method, inspect.getdoc(function) or ""))
    return found


def _operation(api: Any, method: str, text: str) -> Operation:
    types = dict(TYPE.findall(text))
    parameters = [name for name in PARAMETER.findall(text) if name not in OF_CLIENT]
    path, verb, in_path, in_query, rest = getattr(api, method)(**{name: _Marked(name) for name in parameters})
    pattern = re.escape(path)
    for name in in_path:
        pattern = pattern.replace(re.escape("{" + name + "}"), f"(?P<{re.sub('[^a-z_]', '_', name)}>[^/:]+)")
    return Operation(
        name=method.removesuffix("_with_http_info"),
        method=verb,
        path=re.compile(pattern),
        query={wire: types.get(value.name, "str") for wire, value in in_query},
        body=types[rest["body"].name] if rest["body"] is not None else None,
        files=frozenset(rest["files"]),
        answer=rest["response_type"],
    )


@dataclass(frozen=True)
class _Marked:
    name: str


def problems(value: Any, kind: str, where: str) -> list[str]:
    """What is wrong with a JSON value that should be of a type of the description."""
    model = getattr(kfp_server_api, kind, None)
    if model is not None:
        return _model_problems(value, model, where)
    if kind.startswith("list[") and isinstance(value, list):
        return [text for at, each in enumerate(value) for text in problems(each, kind[5:-1], f"{where}[{at}]")]
    if kind.startswith("dict(") and isinstance(value, dict):
        inner = kind[5:-1].split(", ", 1)[1]
        return [text for key, each in value.items() for text in problems(each, inner, f"{where}.{key}")]
    return [] if _is(value, kind) else [f"{where}: {value!r} is no {kind}"]


def _model_problems(value: Any, model: Any, where: str) -> list[str]:
    allowed = getattr(model, "allowable_values", None)
    if allowed is not None:
        return [] if value in allowed else [f"{where}: {value!r} is not one of {allowed}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no {model.__name__}"]
    types = {wire: model.openapi_types[name] for name, wire in model.attribute_map.items()}
    found = []
    for key, each in value.items():
        found += problems(each, types[key], f"{where}.{key}") if key in types else [f"{where} has no field {key}"]
    return found


def _is(value: Any, kind: str) -> bool:
    if kind == "object":
        return True
    if kind == "datetime":
        try:
            datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            return False
        return isinstance(value, str)
    expected = {"str": str, "int": int, "bool": bool, "float": (int, float)}.get(kind, ())
    return isinstance(value, expected) and (kind == "bool" or not isinstance(value, bool))
