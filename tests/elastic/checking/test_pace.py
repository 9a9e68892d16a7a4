# SPDX-License-Identifier: Apache-2.0
"""KV307: how often a script saves."""

from __future__ import annotations

from typing import Any

import pytest

STATE = "{'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'samples': samples}"


@pytest.mark.parametrize(
    "body",
    [
        f"save({STATE}, path)",
        f"if rank == 0:\n    save({STATE}, path)\ndist.barrier()",
        f"torch.save({STATE}, f'checkpoint-{{samples}}.pt')",
        f"import torch.distributed.checkpoint as dcp\ndcp.save({STATE}, checkpoint_id=f'step-{{samples}}')",
    ],
)
def test_a_checkpoint_each_step_is_noted(restart: Any, body: str) -> None:
    """By one rank or by all, in a function or in place."""
    assert restart(body) == ["KV307"]


@pytest.mark.parametrize(
    "body",
    [
        f"if samples % 6400 == 0:\n    save({STATE}, path)",
        f"if time.monotonic() - last > 300:\n    save({STATE}, path)",
        f"if stop:\n    save({STATE}, path)",
        f"import torch.distributed.checkpoint as dcp\ndcp.async_save({STATE}, checkpoint_id=f'step-{{samples}}')",
        f"import io\nbuffer = io.BytesIO()\ntorch.save({STATE}, buffer)",
    ],
)
def test_a_checkpoint_now_and_then_is_right(restart: Any, body: str) -> None:
    """By number, by time, when told to leave, behind the steps, or in memory."""
    assert restart(body, before="last = time.monotonic()") == []
