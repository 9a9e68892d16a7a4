# SPDX-License-Identifier: Apache-2.0
"""Whether a training's loss runs away: such a Job is not to be given more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_volcano.schemas.records import LossTrend

__all__ = ["diverging"]

_SPREADS = 6.0
"""How many times the loss' own trembling its trend must be above the best one."""
_PART = 0.25
"""And which part of the best one: a loss near zero trembles by next to nothing."""


def diverging(trend: LossTrend | None) -> bool:
    """Whether the loss is not finite, or its trend is far above the best that was.

    It says nothing of why: a learning rate that was raised on purpose looks the same for a while. None (too few steps,
    or training that reports no loss) is not diverging.
    """
    if trend is None:
        return False
    if trend.now is None:
        return True
    return trend.now - trend.best > max(_SPREADS * trend.spread, _PART * abs(trend.best))
