# SPDX-License-Identifier: Apache-2.0
"""What a script says that ran out of memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kfp_volcano.elastic.runtime.events import Events
from kfp_volcano.elastic.runtime.memory import advise_on_memory
from kfp_volcano.schemas.events import Kind, read


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (MemoryError(), True),
        (RuntimeError("shapes cannot be multiplied"), False),
    ],
)
def test_a_lack_of_memory_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, told: bool
) -> None:
    """The traceback comes first, then the remedy; other errors are left as they are."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    advise_on_memory(Events(tmp_path, owner="w"))
    sys.excepthook(type(error), error, None)
    said = capsys.readouterr().err
    assert type(error).__name__ in said
    assert ("elasticity.batch.global" in said) is told
    found = list((tmp_path / "events").glob("*"))
    kinds = [event.kind for path in found for event in read({path.name: path.read_text().splitlines()})]
    assert kinds == ([Kind.OUT_OF_MEMORY] if told else [])
