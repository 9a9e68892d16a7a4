# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano simulate --until-broken`: how much load each policy bears, and the smallest case that shows it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kfp_volcano.cli.progress import Progress
    from kfp_volcano.elastic.simulator.promises import Promises
    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.elastic.simulator.stress import Stressed
    from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant

__all__ = ["read_promises", "stress"]

_KEYS = {"share-wait": "share_wait_s", "wait": "wait_s", "rho": "rho", "resizes-per-hour": "resizes_per_hour"}
"""Promises as options name them, and their fields."""
_REMEDY = "share-wait=10m, wait=24h, rho=4, resizes-per-hour=12; none for what is not promised"


def read_promises(given: Sequence[str]) -> Promises:
    """The usual promises, changed as options say (KEY=VALUE). Raises SpecError with everything that is wrong."""
    from kfp_volcano.elastic.simulator.promises import Promises  # noqa: PLC0415

    changes: dict[str, Any] = {}
    wrong = []
    for text in given:
        key, _, value = text.partition("=")
        try:
            changes[_KEYS[key]] = None if value == "none" else _read(key, value)
        except (KeyError, ValueError):
            wrong.append(Problem("--promise", f"{text!r} is no promise", _REMEDY))
    if wrong:
        raise SpecError(wrong, source="--promise")
    return replace(Promises(), **changes)


def _read(key: str, value: str) -> float:
    from kfp_volcano.schemas.quantities import duration  # noqa: PLC0415

    if key in ("share-wait", "wait"):
        return duration(value)
    if not re.fullmatch(r"[0-9]{1,9}" if key == "resizes-per-hour" else r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        raise ValueError(value)
    return int(value) if key == "resizes-per-hour" else float(value)


def stress(
    scenario: Scenario,
    contestants: Sequence[Contestant],
    promises: Promises,
    *,
    out: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Stress each policy, print how much it bears, and write the small scenario that breaks it to `out`.

    Raises SpecError where that cannot be written.
    """
    from kfp_volcano.cli.progress import own_output, progress  # noqa: PLC0415
    from kfp_volcano.elastic.simulator.stress import until_broken  # noqa: PLC0415

    found = {}
    with progress() as shown, own_output():
        for each in contestants:
            found[each.name] = until_broken(
                scenario,
                each.policy,
                promises,
                seed=seed,
                told=partial(_say, shown, each.name),
                watch=lambda at, ended, name=each.name: shown.clock(name, at, ended, len(scenario.jobs)),  # type: ignore[misc] # the name of this turn
            )
    if as_json:
        told = {name: _wire(stressed) for name, stressed in found.items()}
        click.echo(json.dumps({"promises": asdict(promises), "policies": told}, indent=2))
    else:
        print_table(("POLICY", "HOLDS AT LOAD", "BREAKS AT LOAD", "WHAT BREAKS"), list(map(_row, found.items())))
    if out is not None:
        _write(out, found)


def _say(shown: Progress, policy: str, text: str) -> None:
    shown.say(f"{policy}: {text}")


def _row(named: tuple[str, Stressed]) -> tuple[str, str, str, str]:
    name, found = named
    holds, breaks = (f"{load:.3g}" if load else "none tried" for load in (found.holds_at, found.breaks_at))
    return name, holds, breaks, found.broken[0].text if found.broken else "nothing"


def _wire(found: Stressed) -> dict[str, Any]:
    return {
        "holds_at": found.holds_at,
        "breaks_at": found.breaks_at,
        "broken": [asdict(each) for each in found.broken],
        "small_broken": [asdict(each) for each in found.small_broken],
        "document": found.document,
        "runs": found.runs,
    }


def _write(out: Path, found: dict[str, Stressed]) -> None:
    import yaml  # noqa: PLC0415

    for name, stressed in found.items():
        if stressed.document is None:
            continue
        path = out / f"{name}-broken.yaml"
        heads = "".join(f"# Under {name}: {each.text}.\n" for each in stressed.small_broken)
        try:
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(heads + yaml.safe_dump(stressed.document, sort_keys=False), encoding="utf-8")
        except OSError as error:
            raise SpecError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
        say(f"{path}: written")
