# SPDX-License-Identifier: Apache-2.0
"""All rules over a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking import (
    batches,
    contents,
    data,
    group,
    loop,
    losses,
    networks,
    orders,
    pace,
    rates,
    saving,
    seeds,
    signals,
)
from kfp_volcano.elastic.checking.codes import BY_CODE, Finding, Severity
from kfp_volcano.elastic.checking.script import Script
from kfp_volcano.elastic.checking.sources import read_script
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["Reading", "check"]

_RULES = (
    rates.rules,
    batches.rules,
    data.rules,
    orders.rules,
    saving.rules,
    contents.rules,
    pace.rules,
    losses.rules,
    seeds.rules,
    signals.rules,
    group.rules,
    loop.rules,
    networks.rules,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read in a script."""

    files: tuple[str, ...]
    live: bool
    """Whether it was read as one that resizes live; else as one that is stopped and started again."""
    imports: frozenset[str]
    """First words of what the files import."""
    findings: tuple[Finding, ...]
    """By file and line; what a line silences is left out."""

    @property
    def mistakes(self) -> tuple[Finding, ...]:
        """The findings that are not mere notes."""
        return tuple(each for each in self.findings if each.severity is Severity.MISTAKE)


def check(path: Path, *, live: bool | None = None, ignored: Collection[str] = ()) -> Reading:
    """Read a script with its local imports and look for every mistake of `codes.CODES`.

    Args:
        path: the script; its imports are looked for in its folder. Nothing of it is executed.
        live: whether it resizes live (strategy `live`); by default, whether it makes a `Training`.
        ignored: codes that are left out.

    Raises:
        SpecError: a file cannot be read, or is not Python; an ignored code is none.
    """
    unknown = [
        Problem("--ignore", f"{code} is no code", "docs/check-script.md lists them")
        for code in ignored
        if code not in BY_CODE
    ]
    if unknown:
        raise SpecError(unknown, source="--ignore")
    modules = read_script(path)
    script = Script(modules, live=live)
    found = {(each.path, each.line, each.code): each for rules in _RULES for each in rules(script)}
    order = {module.shown: number for number, module in enumerate(modules)}
    findings = sorted(found.values(), key=lambda each: (order[each.path], each.line, each.code))
    kept = tuple(each for each in findings if each.code not in ignored and not script.silenced(each))
    imports = frozenset(name.partition(".")[0] for module in modules for name in module.imports.values())
    return Reading(files=tuple(order), live=script.live, imports=imports, findings=kept)
