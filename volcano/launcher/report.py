# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs nothing else, `result.json` beside it, and a few lines of Markdown."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kfp_volcano.volcano.launcher.charts import charts
from kfp_volcano.volcano.launcher.frame import letter
from kfp_volcano.volcano.launcher.pauses import SETTLE_STEPS
from kfp_volcano.volcano.launcher.story import clock, duration, exact, lasting, story, succeeded, watched

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["render_report", "summary_markdown", "write_report"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def render_report(result: dict[str, Any]) -> str:
    """The report as HTML: no script, no request to any host, the same bytes for the same result."""
    pauses = [resize["pause_s"] for resize in result["resizes"] if resize["pause_s"] is not None]
    sizes = _sizes(result)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            story=story(result),
            watched=watched(result),
            succeeded=succeeded(result),
            exact=exact(result),
            charts=charts(result),
            longest_pause=max(pauses, default=None),
            sizes=(min(sizes), max(sizes)) if sizes else None,
            settle_steps=SETTLE_STEPS,
        )
    )


def _sizes(result: dict[str, Any]) -> list[int]:
    """How many workers trained, one after the other, from when the first ones were all there."""
    sizes = [count for _, count in result["workers"] or []]
    began_with = result["resizes"][0]["from"] if result["resizes"] else max(sizes, default=0)
    together = next((at for at, count in enumerate(sizes) if count >= began_with), 0)
    return sizes[together:]


def summary_markdown(result: dict[str, Any]) -> str:
    """The run in a few lines of Markdown: its story, and a table of its resizes."""
    lines = [f"## {_literal(result['job'])}: {_literal(result['state'])}", "", _literal(" ".join(story(result)))]
    if result["resizes"]:
        lines += ["", "| # | workers | reason | request to done | pause | steps lost |", "|--:|:--|:--|--:|--:|--:|"]
    for number, resize in enumerate(result["resizes"], start=1):
        took, pause, lost = lasting(resize), resize["pause_s"], resize["steps_lost"]
        cells = (
            f"{number}",
            f"{resize['from']} → {resize['to']}",
            _literal(resize["reason"]),
            resize["phase"] if took is None else duration(took),
            "" if pause is None else duration(pause),
            "" if lost is None else f"{lost}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_report(directory: Path, result: dict[str, Any]) -> tuple[Path, Path]:
    """Write `report.html` and `result.json` into a directory, which is made if it is not there.

    Returns:
        The paths of the two files. Either holds its whole content or what it held before.

    Raises:
        OSError: The directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    report, figures = directory / "report.html", directory / "result.json"
    _replace(report, render_report(result))
    _replace(figures, json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return report, figures


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _literal(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split())).replace(r"\<", "&lt;").replace(r"\&", "&amp;")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kfp_volcano.volcano.launcher"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clock=clock, duration=duration, lasting=lasting, letter=letter, iso=_iso, moment=_moment)
    return environment


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, tz=timezone.utc).isoformat(timespec="milliseconds")


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
