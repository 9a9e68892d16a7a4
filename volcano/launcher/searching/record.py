# SPDX-License-Identifier: Apache-2.0
"""What a search has found so far, in its folder: whoever asks again goes on from there."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Found", "Record", "ranked"]

_ASKED, _RESULTS = "search.json", "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a trial ended."""

    trial: int
    """From 1."""
    values: dict[str, Any]
    """By the paths of the fields that are varied."""
    state: Literal["ended", "pruned", "failed"]
    value: float | None
    """The metric, as it was last; None where it never was."""
    percent: float
    """Of its steps."""
    attempt: int = 1
    """A trial that failed is tried again when the search goes on."""
    job: str = ""
    """namespace/name; empty where there never was one."""
    message: str = ""
    """Why it failed."""


class Record:
    """A search's folder: what was asked, and what has been found.

    Args:
        folder: Is made where it is not there.
        asked: What makes this search another than the next: plain values.

    Raises:
        SpecError: The folder cannot be used, or holds another search.
    """

    def __init__(self, folder: Path, asked: Mapping[str, Any]) -> None:
        self.folder = folder
        plain = json.loads(json.dumps(asked, default=str))  # YAML has dates
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.begun = (folder / _ASKED).exists()
            """Whether somebody has asked the same before."""
            if not self.begun:
                self._write(_ASKED, {"id": uuid.uuid4().hex[:8], "asked": plain})
            known = _read(folder / _ASKED)
            before, name = dict(known["asked"]), str(known["id"])
            self.found = {each["trial"]: Found(**each) for each in _read(folder / _RESULTS) or ()}
        except OSError as error:
            raise SpecError(f"cannot be used: {error.strerror}", source=f"--out {folder}") from error
        except (ValueError, TypeError, KeyError):
            raise SpecError(f"its {_ASKED} or {_RESULTS} is damaged", source=f"--out {folder}") from None
        if before != plain:
            different = ", ".join(each for each in plain if plain[each] != before.get(each))
            raise SpecError(f"holds another search (other {different}): name another folder", source=f"--out {folder}")
        self.id = name
        """Names the search's Jobs."""

    def add(self, found: Found) -> None:
        """Keep how a trial ended."""
        self.found[found.trial] = found
        self._write(_RESULTS, [asdict(self.found[trial]) for trial in sorted(self.found)])

    def attempt(self, trial: int) -> int | None:
        """Which attempt at a trial is to come; None where there is nothing left to do."""
        known = self.found.get(trial)
        if known is None:
            return 1
        return known.attempt + 1 if known.state == "failed" else None

    def _write(self, name: str, content: Any) -> None:
        partial = self.folder / f".{name}.partial"
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(self.folder / name)


def ranked(found: Mapping[int, Found], mode: str) -> list[Found]:
    """The best first; what was given up early is no best, whatever it promised, and comes after all that ended."""

    def place(each: Found) -> tuple[bool, bool, float]:
        value = 0.0 if each.value is None else each.value
        return each.state != "ended", each.value is None, -value if mode == "max" else value

    return sorted(found.values(), key=place)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
