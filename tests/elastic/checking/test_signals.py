# SPDX-License-Identifier: Apache-2.0
"""KV401 to KV403: SIGTERM, and how a script leaves."""

from __future__ import annotations

from typing import Any

import pytest

TEXT = """
import os
import signal
import sys
import threading
from pathlib import Path
import torch

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stop = threading.Event()
path = Path("c.pt")

def save(step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "c.tmp")
    os.replace("c.tmp", path)

HANDLER
step = 0
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    step = saved["step"]
while step < 1000:
    model(data(step)).backward()
    optimizer.step()
    step += 1
    BODY
"""


def _text(handler: str, body: str = "pass") -> str:
    return TEXT.replace("HANDLER", handler).replace("BODY", body.replace("\n", "\n    "))


def _but_pace(found: list[str]) -> list[str]:
    """Without the note that a checkpoint each step is a slow one."""
    return [code for code in found if code != "KV307"]


@pytest.mark.parametrize(
    ("handler", "body", "expected"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "if step % 100 == 0:\n    save(step)", ["KV401"]),
        ("", "if step % 100 == 0:\n    save(step)", ["KV401"]),
        ("def told(*_):\n    print('no')\nsignal.signal(signal.SIGTERM, told)", "save(step)", ["KV401"]),
        (
            "def told(*_):\n    pass\nfor s in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(s, told)",
            "save(step)",
            ["KV401"],
        ),
        ("def told(*_):\n    sys.exit(0)\nsignal.signal(signal.SIGTERM, told)", "save(step)", ["KV402", "KV403"]),
        ("def told(*_):\n    sys.exit(143)\nsignal.signal(signal.SIGTERM, told)", "save(step)", ["KV403"]),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))", "save(step)", ["KV402", "KV403"]),
        ("def told(*_):\n    save(step)\n    os._exit(0)\nsignal.signal(signal.SIGTERM, told)", "pass", ["KV402"]),
        (
            "def told(*_):\n    raise SystemExit(0)\nsignal.signal(signal.SIGTERM, told)",
            "save(step)",
            ["KV402", "KV403"],
        ),
        (
            "def told(*_):\n    stop.set()\nsignal.signal(signal.SIGTERM, told)",
            "if stop.is_set():\n    save(step)\n    sys.exit(0)",
            ["KV402"],
        ),
        (
            "signal.signal(signal.SIGTERM, lambda *_: stop.set())",
            "if stop.is_set():\n    save(step)\n    sys.exit()",
            ["KV402"],
        ),
        (
            "signal.signal(signal.SIGTERM, lambda *_: stop.set())",
            "if stop.is_set():\n    save(step)\n    break",
            ["KV402"],
        ),
        (
            "def told(*_):\n    global leaving\n    leaving = True\nsignal.signal(signal.SIGTERM, told)",
            "flag = torch.tensor(int(leaving))\nif flag.item():\n    save(step)\n    break",
            ["KV402"],
        ),
        (
            "signal.signal(signal.SIGTERM, lambda *_: stop.set())\ndef asked():\n    return stop.is_set()",
            "if asked():\n    save(step)\n    break",
            ["KV402"],
        ),
    ],
)
def test_a_signal_that_is_not_minded_is_found(codes: Any, handler: str, body: str, expected: list[str]) -> None:
    """Ignored, answered by nothing, by leaving at once, or with a code that says finished."""
    assert _but_pace(codes(_text(handler, body))) == expected


def test_a_loop_that_ends_when_told_to_leave_is_found(codes: Any) -> None:
    """Where nothing follows it but the end of the script, whose code is 0."""
    text = _text("signal.signal(signal.SIGTERM, lambda *_: stop.set())", "if step % 9 == 0:\n    save(step)")
    until = text.replace("while step < 1000:", "while step < 1000 and not stop.is_set():")
    assert codes(until) == ["KV402"]
    assert codes(until + "\nif stop.is_set():\n    sys.exit(143)\n") == []
    assert codes(until + "\nif stop.is_set():\n    signal.raise_signal(signal.SIGKILL)\n") == []


@pytest.mark.parametrize(
    ("handler", "body"),
    [
        ("", "save(step)"),
        ("signal.signal(signal.SIGTERM, signal.SIG_DFL)", "save(step)"),
        (
            "signal.signal(signal.SIGTERM, lambda *_: stop.set())",
            "if stop.is_set():\n    save(step)\n    sys.exit(143)",
        ),
        (
            "signal.signal(signal.SIGTERM, lambda *_: stop.set())",
            "if stop.is_set():\n    save(step)\n    raise KeyboardInterrupt",
        ),
        (
            "def told(*_):\n    global leaving\n    leaving = True\nsignal.signal(signal.SIGTERM, told)",
            "if leaving:\n    save(step)\n    sys.exit(128 + signal.SIGTERM)",
        ),
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(0))", "save(step)"),
        ("if len(sys.argv) > 3:\n    sys.exit(0)", "save(step)"),
    ],
)
def test_a_signal_that_is_minded_is_right(codes: Any, handler: str, body: str) -> None:
    """A flag and a checkpoint, or a checkpoint each step."""
    assert _but_pace(codes(_text(handler, body))) == []


def test_a_final_model_is_no_checkpoint(codes: Any) -> None:
    """What is saved after the loop has no part in how a script leaves it."""
    text = _text("", "save(step)") + '\ntorch.save(model.state_dict(), "model.pt")\n'
    assert _but_pace(codes(text)) == []


def test_a_checkpoint_an_epoch_is_not_one_a_step(codes: Any) -> None:
    """What has been done since the epoch began is lost."""
    text = (
        _text("").replace("    pass", "").replace("while step < 1000:", "for epoch in range(9):\n  for _ in range(9):")
        + "\n  save(epoch)\n"
    )
    assert codes(text) == ["KV401"]
