# SPDX-License-Identifier: Apache-2.0
"""The samples of a training's shares, fetched ahead by processes of PyTorch's DataLoader.

A DataLoader by itself goes through a sampler's list, and what it has read ahead is lost when the list changes. Here the
list is what this process will be dealt next as things stand, known exactly from the plan; samples are kept one by one,
by their positions in the order of all epochs, until the step that fed them has committed. So after a resize, and when a
step is done again, only those are fetched that were not due to this process before.
"""

from __future__ import annotations

from kfp_volcano.elastic.runtime.loading.loader import Loader
from kfp_volcano.elastic.runtime.loading.streams import Streams

__all__ = ["Loader", "Streams"]
