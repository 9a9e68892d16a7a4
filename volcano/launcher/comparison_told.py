# SPDX-License-Identifier: Apache-2.0
"""The comparison of an experiment's arms, in words and tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.launcher.comparison import LEAST, LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.volcano.launcher.comparison import Comparison, Difference, Measure

__all__ = ["told"]


def told(found: Comparison) -> list[str]:
    """Lines for people."""
    return list(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    first, *others = found.arms
    yield f"experiment {found.experiment}: " + ", ".join(
        f"{arm} {done} Jobs" + (f" (and {failed} that did not succeed)" if failed else "")
        for arm, (done, failed) in found.arms.items()
    )
    yield ""
    header = ["", *found.arms, *(f"{arm} - {first}" for arm in others)]
    rows = [header]
    for name, measures in found.measures.items():
        compared = (_compared(each) for each in found.differences[name])
        rows.append([name, *(_mean(measures[arm]) for arm in found.arms), *compared])
    yield from _aligned(rows)
    yield ""
    yield f"Means of Jobs that succeeded, each with the interval in which it lies at {LEVEL:.0%} (Student's t)."
    if others:
        together = f" ({LEVEL:.0%} for all {len(others)} together)" if len(others) > 1 else ""
        yield f"Differences to {first} with Welch's t-interval at {found.level:.1%}{together}."
        yield "* its interval leaves out that there is no difference."
    few = [arm for arm, (done, _) in found.arms.items() if done < LEAST]
    if few:
        yield f"Too few Jobs to say anything of {', '.join(few)}: at least {LEAST} in each arm."
    if not others:
        yield "There is one arm with Jobs that have ended: nothing to compare it with yet."
    if found.late:
        yield f"Of {found.late} Jobs the beginning was not seen: what they had and did before that is not counted."


def _mean(measure: Measure) -> str:
    if measure.mean is None:
        return "-"
    half = f" ± {measure.high - measure.mean:.3g}" if measure.high is not None else ""
    return f"{measure.mean:.4g}{half}"


def _compared(each: Difference) -> str:
    if each.by is None or each.low is None or each.high is None:
        return "too few"
    return f"{each.by:+.3g} [{each.low:+.3g}, {each.high:+.3g}]{' *' if each.clear else ''}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
