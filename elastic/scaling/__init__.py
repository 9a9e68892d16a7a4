# SPDX-License-Identifier: Apache-2.0
"""How many samples a step holds and what it learns at: functions of the present size and of base values alone.

Nothing here looks at the last size or multiplies the last value, so that 4 → 8 → 4 workers end with the batch and the
learning rate they began with, bit for bit; rules that go from size to size compound their error at each resize.
"""

from __future__ import annotations

from kfp_volcano.elastic.scaling.adam import bias_ratio, scaled_beta
from kfp_volcano.elastic.scaling.ramp import Ramp
from kfp_volcano.elastic.scaling.rules import Factors, Rule, Situation, misfits, named
from kfp_volcano.elastic.scaling.sizing import Sizing

__all__ = ["Factors", "Ramp", "Rule", "Situation", "Sizing", "bias_ratio", "misfits", "named", "scaled_beta"]
