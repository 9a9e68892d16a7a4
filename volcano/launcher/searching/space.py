# SPDX-License-Identifier: Apache-2.0
"""What a search varies: fields of a spec, each with its values or their distribution. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.changes import changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Dimension", "has_grid", "space", "varied"]

_DISTRIBUTIONS = ("uniform", "loguniform", "randint")
_CALL = re.compile(r"(\w+)\(([^(),]+),([^(),]+)\)")
_NUMBER = re.compile(r"[-+.\de]+")
_FORMS = "VALUE,VALUE,…, uniform(LOW,HIGH), loguniform(LOW,HIGH) or randint(LOW,HIGH)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One field that is varied."""

    path: str
    """Under the TrainingJob's `spec`."""
    kind: str
    """`choice`, `uniform`, `loguniform` or `randint`."""
    values: tuple[Any, ...]
    """All there are; or the lowest, and what is above the highest."""


def space(given: Mapping[str, str], wire: Mapping[str, Any]) -> list[Dimension]:
    """What is said of each field, such as `32,64` or `loguniform(1e-4,1e-1)`.

    Values of a list are YAML; those of environment variables are taken as they stand.

    Raises:
        SpecError: Lists every field whose values are not understood, or that is no place in the spec.
    """
    read = [_dimension(path, text, wire) for path, text in given.items()]
    problems = [each for each in read if isinstance(each, Problem)]
    if not given:
        problems.append(Problem("--param", "there is nothing to vary", f"PATH={_FORMS}"))
    if problems:
        raise SpecError(problems, source="the search")
    return [each for each in read if isinstance(each, Dimension)]


def has_grid(dimensions: Sequence[Dimension]) -> bool:
    """Whether all combinations can be tried: nothing is drawn from a distribution."""
    return all(each.kind == "choice" for each in dimensions)


def varied(wire: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a trial. Environment variables are texts, whatever they are varied as."""
    return changed(wire, {path: str(value) if _in_environment(path) else value for path, value in values.items()})


def _dimension(path: str, text: str, wire: Mapping[str, Any]) -> Dimension | Problem:
    try:
        kind, values = _values(text, as_texts=_in_environment(path))
        changed(wire, {path: None})
    except ValueError as error:
        return Problem(f"--param {path}", str(error), _FORMS)
    except SpecError as error:
        return Problem(f"--param {path}", error.problems[0].message, error.problems[0].remedy)
    return Dimension(path=path, kind=kind, values=values)


def _in_environment(path: str) -> bool:
    return "env" in path.split(".")[:-1]


def _values(text: str, *, as_texts: bool) -> tuple[str, tuple[Any, ...]]:
    """The kind of a dimension and its values. Raises ValueError where they are not understood."""
    call = _CALL.fullmatch(text.replace(" ", ""))
    if call is None:
        if "(" in text:
            raise ValueError(f"{text!r} is not understood")
        return "choice", tuple(_text(each) if as_texts else _scalar(each) for each in text.split(","))
    kind, low, high = call.groups()
    if kind not in _DISTRIBUTIONS:
        raise ValueError(f"there is no distribution {kind}")
    number = int if kind == "randint" else float
    bounds = number(low), number(high)
    if not bounds[0] < bounds[1] or (kind == "loguniform" and bounds[0] <= 0):
        raise ValueError(f"{text} is no range{' of positive numbers' if kind == 'loguniform' else ''}")
    return kind, bounds


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("a value is empty")
    return text.strip()


def _scalar(text: str) -> Any:
    try:
        value = yaml.safe_load(_text(text))
    except yaml.YAMLError:
        raise ValueError(f"{text!r} is no value") from None
    if value is None or isinstance(value, (dict, list)):
        raise ValueError(f"{text!r} is no single value")
    if isinstance(value, str) and _NUMBER.fullmatch(value):  # YAML 1.1 takes 1e-3 for a text
        try:
            return float(value)
        except ValueError:
            return value
    return value
