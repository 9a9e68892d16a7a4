"""The report of a comparison: one HTML page that needs nothing else, no host and no other file."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.volcano.launcher.laboratory.curves import COLOURS, completion, settings
from kfp_volcano.volcano.launcher.laboratory.picture import picture
from kfp_volcano.volcano.launcher.laboratory.told import SOURCES, rows, shown, story

if TYPE_CHECKING:
    from kfp_volcano.volcano.launcher.laboratory.study import Study
    from kfp_volcano.volcano.launcher.laboratory.sweep import Swept

__all__ = ["page"]

_MOST_ROWS = 50


def page(study: Study) -> str:
    """The page, the same bytes for the same comparison."""
    drawn = picture(study.outcomes)
    replayed = [f"{name}: {each}" for name, outcome in study.outcomes.items() for each in outcome.notes]
    return (
        _environment()
        .get_template("laboratory.html.j2")
        .render(
            study=study,
            story=story(study),
            rows=rows(study),
            sources=SOURCES,
            notes=[*study.scenario.notes, *replayed],
            drawn=drawn,
            # No markup may begin within the script element that holds it.
            data=json.dumps(drawn, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
            colours=[colour.variable for colour in COLOURS],
            charts=[chart for chart in (completion(study.outcomes), study.swept and settings(study.swept)) if chart],
            tried=_tried(study.swept) if study.swept else [],
            metric=METRICS[study.swept.metric].title if study.swept else "",
        )
    )


def _tried(swept: Swept) -> list[tuple[str, str, bool]]:
    """The combinations, best first: name, the metric, whether it is the best."""
    known = [(swept.value(figures), variant) for variant, figures in swept.tried]
    worst = float("inf")
    sign = 1 if METRICS[swept.metric].better == "less" else -1
    known.sort(key=lambda pair: worst if pair[0] is None else sign * pair[0])
    return [
        (variant.contestant.name, shown(swept.metric, value), variant is swept.best)
        for value, variant in known[:_MOST_ROWS]
    ]


@cache
def _environment() -> Environment:
    loader = PackageLoader("kfp_volcano.volcano.launcher")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
