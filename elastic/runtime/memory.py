# SPDX-License-Identifier: Apache-2.0
"""What a script says that ended because memory ran out.

A process that the kernel or the kubelet kills says nothing: its pod's status does (`OOMKilled`), and it is started
again as any that was killed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from types import TracebackType

    from kfp_volcano.elastic.runtime.events import Events

__all__ = ["advise_on_memory"]

_ADVICE = (
    "give each worker a smaller part of the global batch (more workers, a smaller elasticity.batch.global, or gradient "
    "accumulation), or the role more resources.memory"
)


def advise_on_memory(events: Events) -> None:
    """Makes an uncaught lack of memory say, after its traceback, what can be done; and tells it to the log."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if _ran_out(error):
            events.add(Kind.OUT_OF_MEMORY, str(error).split("\n", 1)[0] or "the process has no memory left")
            sys.stderr.write(f"The worker ran out of memory: {_ADVICE}.\n")

    sys.excepthook = hook


def _ran_out(error: BaseException) -> bool:
    # PyTorch's allocator of ordinary memory raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
