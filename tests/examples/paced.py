# SPDX-License-Identifier: Apache-2.0
"""Runs an example's program slowly until somebody creates a file: for as long as a test wants to resize it.

`paced.py FILE PROGRAM ARGUMENT…`. Whoever trains takes the samples of a batch from its plan.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.sharding import Plan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACE_S = 0.25

_, enough, program, *arguments = sys.argv
between = Plan.between


def slowly(*given: Any) -> NDArray[np.int64]:
    """The same batch, a moment later."""
    if not Path(enough).exists():
        time.sleep(PACE_S)
    return between(*given)


Plan.between = slowly  # type: ignore[method-assign]
sys.argv = [program, *arguments]
sys.path[0] = str(Path(program).resolve().parent)
runpy.run_path(program, run_name="__main__")
