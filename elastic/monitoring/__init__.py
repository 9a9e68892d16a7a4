# SPDX-License-Identifier: Apache-2.0
"""The watch on convergence: what is seen in a training's numbers, and what follows. Functions of those numbers alone.

All workers see the same numbers, for they travel with the gradients, and so come to the same decisions.
"""

from __future__ import annotations

from kfp_volcano.elastic.monitoring.evaluation import Evaluations, Judgement
from kfp_volcano.elastic.monitoring.pace import Pace, Slower
from kfp_volcano.elastic.monitoring.skips import Skips
from kfp_volcano.elastic.monitoring.spikes import Leap, Spikes
from kfp_volcano.elastic.monitoring.watch import Seen, Watch

__all__ = ["Evaluations", "Judgement", "Leap", "Pace", "Seen", "Skips", "Slower", "Spikes", "Watch"]
