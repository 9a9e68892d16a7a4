# SPDX-License-Identifier: Apache-2.0
"""What became of each field of a manifest: the account that comes with a converted spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Entry", "Outcome", "markdown", "text"]

Outcome = Literal["kept", "changed", "lost"]

_TITLES: dict[Outcome, str] = {
    "lost": "Has no counterpart",
    "changed": "Works differently",
    "kept": "Kept",
}
"""The outcomes, in the order in which a reader wants them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What became of one field of a manifest, or of one thing that the manifest leaves to its operator."""

    path: str
    """In the document: `spec.runPolicy.cleanPodPolicy`."""
    outcome: Outcome
    target: str = ""
    """Where it stands in the TrainingJob; empty where it stands nowhere."""
    why: str = ""
    """What differs, and why that matters."""
    remedy: str = ""
    """What to do about it, where something has to be done."""

    def __str__(self) -> str:
        arrow = f" -> {self.target}" if self.target else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.path}{arrow}: {self.why}{remedy}" if self.why else f"{self.path}{arrow}"


def text(title: str, entries: Iterable[Entry]) -> str:
    """The account as lines for a terminal: what is lost and what differs; what was kept is only counted."""
    grouped = _grouped(entries)
    lines = [title]
    for outcome in ("lost", "changed"):
        lines += [f"  {_TITLES[outcome].lower()}: {entry}" for entry in grouped[outcome]]
    lines.append(f"  kept: {len(grouped['kept'])} fields")
    return "\n".join(lines) + "\n"


def markdown(title: str, entries: Iterable[Entry]) -> str:
    """The whole account as a page of Markdown, with a table for each outcome."""
    parts = [f"# {title}\n"]
    for outcome, found in _grouped(entries).items():
        if found:
            parts.append(f"\n## {_TITLES[outcome]}\n\n{_table(outcome, found)}")
    return "".join(parts)


def _grouped(entries: Iterable[Entry]) -> dict[Outcome, list[Entry]]:
    grouped: dict[Outcome, list[Entry]] = {outcome: [] for outcome in _TITLES}
    for entry in entries:
        if entry not in grouped[entry.outcome]:
            grouped[entry.outcome].append(entry)
    return grouped


def _table(outcome: Outcome, entries: Sequence[Entry]) -> str:
    header = {
        "kept": ("field", "stands in"),
        "changed": ("field", "stands in", "what differs", "what to do"),
        "lost": ("field", "why it matters", "what to do"),
    }[outcome]
    rows = [header, tuple("---" for _ in header)]
    for entry in entries:
        path, target = _code(entry.path), _code(entry.target)
        rows.append(
            {
                "kept": (path, target),
                "changed": (path, target, _cell(entry.why), _cell(entry.remedy)),
                "lost": (path, _cell(entry.why), _cell(entry.remedy)),
            }[outcome]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _code(words: str) -> str:
    return f"`{_cell(words).replace('`', chr(39))}`" if words else ""


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")
