# SPDX-License-Identifier: Apache-2.0
"""Which samples belong to which step, and to whom: a function of the plan alone, never of past sizes.

The order of an epoch is a bijection of (seed, epoch). A step takes the next positions of that order, as many as its
global batch holds, whatever the number of workers, and they are shared out among those present. So the whole state of
the data is a `Cursor` of two numbers, and a run that resizes feeds the same batches as one that does not (the law of
MosaicML StreamingDataset's elastic determinism, without its divisibility rules).
"""

from __future__ import annotations

from kfp_volcano.elastic.sharding.cut import Cut, cut
from kfp_volcano.elastic.sharding.mixture import Mixture
from kfp_volcano.elastic.sharding.order import order
from kfp_volcano.elastic.sharding.orders import Files, Order, Sequential, Shuffled, blocks, samples_of
from kfp_volcano.elastic.sharding.pace import Pace
from kfp_volcano.elastic.sharding.plan import Cursor, Data, Last, Plan
from kfp_volcano.elastic.sharding.shares import apportion, bounds, edges, quotas, share

__all__ = [
    "Cursor",
    "Cut",
    "Data",
    "Files",
    "Last",
    "Mixture",
    "Order",
    "Pace",
    "Plan",
    "Sequential",
    "Shuffled",
    "apportion",
    "blocks",
    "bounds",
    "cut",
    "edges",
    "order",
    "quotas",
    "samples_of",
    "share",
]
