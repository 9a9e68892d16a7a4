# SPDX-License-Identifier: Apache-2.0
"""From what a user wrote to a TrainingJob, or to all that is wrong with it.

The JSON Schema (`schemas/json/training-job.v1.schema.json`) comes first, then the rules it cannot express, then the
type. Whatever is wrong is found in one go; a rule is skipped where a value it needs is broken or not known yet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import rules
from kfp_volcano.schemas.documents import parse
from kfp_volcano.schemas.profiles import BUILT_IN, filled
from kfp_volcano.schemas.structure import Finding, Unknown, load_schema
from kfp_volcano.schemas.wire import build, spec_hash, spec_text, to_wire
from kfp_volcano.schemas.wording import by_place, examine, problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.schemas.profiles import Profiles
    from kfp_volcano.schemas.structure import Path
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["Unknown", "check_known", "parse", "spec_hash", "to_wire", "training_job"]

_LONGEST_SPEC = 128 * 1024
"""Bytes of JSON: the spec is an annotation of its Job, and all annotations together may have 256 KiB."""


def training_job(
    value: Mapping[str, Any],
    *,
    source: str = "spec",
    lenient_numbers: bool = False,
    profiles: Profiles = BUILT_IN,
) -> TrainingJob:
    """The TrainingJob in a mapping, the resource `profiles` it names filled in.

    With `lenient_numbers` text such as "4" is taken for the number it spells where a number is wanted: for values
    that came through pipeline parameters, never for files. Raises SpecError with every problem found.
    """
    plain, found = _check(value, lenient_numbers=lenient_numbers, profiles=profiles)
    told = {finding.path for finding in found}
    found += [Finding(path, "is not known yet", "give it a value") for path in _unknowns(plain, ()) if path not in told]
    if found:
        raise SpecError(problems(found, source), source=source)
    job = build(plain)
    # What is filled in never makes a spec sixteen times as long.
    size = len(spec_text(job).encode()) if len(json.dumps(plain)) > _LONGEST_SPEC / 16 else 0
    if size > _LONGEST_SPEC:
        raise SpecError(
            [
                Problem(
                    source,
                    f"is {size} bytes long",
                    f"at most {_LONGEST_SPEC}: move long values into the image or the volume",
                )
            ],
            source=source,
        )
    return job


def check_known(
    value: Any, *, lenient_numbers: bool = False, source: str = "spec", profiles: Profiles = BUILT_IN
) -> list[Problem]:
    """What is wrong with a spec as far as it is known: an `Unknown` is right wherever it stands.

    For the time a pipeline is compiled, when some values are still parameters or outputs of earlier steps.
    """
    _, found = _check(value, lenient_numbers=lenient_numbers, profiles=profiles)
    return problems(found, source)


def _check(value: Any, *, lenient_numbers: bool, profiles: Profiles) -> tuple[Any, list[Finding]]:
    schema = load_schema("training-job.v1")
    plain, found = examine(value, schema, lenient_numbers=lenient_numbers)
    plain, missing = filled(plain, profiles)
    first = by_place([*found, *missing])
    return plain, [*first.values(), *rules.findings(plain, first.keys())]


def _unknowns(value: Any, path: Path) -> Iterator[Path]:
    """Where the values are that nobody has filled in."""
    if isinstance(value, Unknown):
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _unknowns(child, (*path, key))
