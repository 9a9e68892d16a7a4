# SPDX-License-Identifier: Apache-2.0
"""Changes to a spec by paths: `elasticity.batch.global` for what is under `spec` of a TrainingJob. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["changed"]


def changed(wire: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """A copy of a TrainingJob with some fields of its `spec` set; mappings on the way that are not there are made.

    Whether the fields exist is for the validation of the result to say.

    Raises:
        SpecError: A path is empty, or leads through something that holds no fields; lists every one.
    """
    result: dict[str, Any] = deepcopy(dict(wire))
    problems = []
    for path, value in changes.items():
        *way, last = path.split(".")
        place: Any = result.setdefault("spec", {})
        for name in way:
            place = place.setdefault(name, {}) if isinstance(place, dict) else None
        if isinstance(place, dict) and all((*way, last)):
            place[last] = deepcopy(value)
        else:
            problems.append(Problem(path or "''", "is no path to a field of the spec", "as elasticity.batch.global"))
    if problems:
        raise SpecError(problems, source="changes of the spec")
    return result
