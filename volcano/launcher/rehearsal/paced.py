# SPDX-License-Identifier: Apache-2.0
"""Runs a training script that stops at a gate: `python -m …rehearsal.paced STRATEGY FOLDER SCRIPT ARGUMENTS`.

A short training is over before a worker has started. So steps wait at a gate, a file that says how many may be
done and how fast, until what is to happen at that step has happened. Nothing else of the script changes.

Counted are the steps of `Training`, or where there is none of PyTorch's optimizers. Into FOLDER goes one file a
process, JSON lines of what can be seen from outside: its start, steps, files written and read, signals, its end.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["GATE", "open_gate"]

GATE = "gate.json"
_LOOK_S = 0.02
_WRITES = ("w", "a", "x", "+")


def open_gate(folder: Path, *, upto: int | None, pace_s: float = 0.0) -> None:
    """Lets processes do that many steps (None: all) with that pause before each."""
    partial = folder / f"{GATE}.partial"
    partial.write_text(json.dumps({"upto": upto, "pace_s": pace_s}))
    partial.replace(folder / GATE)


class _Gate:
    """What the processes read of it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / GATE
        self.told = False
        """Whether this process was told to leave: then nothing holds it up."""

    def wait(self, steps: int) -> None:
        """Returns when one step more than these may be done."""
        while True:
            gate = json.loads(self._path.read_text())
            if self.told:
                return
            if gate["upto"] is None or steps < gate["upto"]:
                time.sleep(gate["pace_s"])
                return
            time.sleep(_LOOK_S)


class _Record:
    """What this process does, as JSON lines."""

    def __init__(self, folder: Path) -> None:
        path = folder / "processes" / f"{time.time_ns()}-{os.getpid()}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._own = (str(path.parent), str(folder / GATE))
        self.steps = 0

    def add(self, kind: str, **facts: Any) -> None:
        line = {"kind": kind, "time": time.time(), "steps": self.steps, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Files that Python code opens and renames."""
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[1], str):
            self.file("wrote" if any(letter in arguments[1] for letter in _WRITES) else "read", arguments[0])
        elif event == "os.rename":
            self.file("wrote", os.fspath(arguments[1]))

    def file(self, kind: str, path: Any) -> None:
        """A file that was written or read, unless it is of Python itself, of the system or of this record."""
        name = os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""  # noqa: PTH100
        passed = (*self._own, "/proc/", "/sys/", "/dev/", "/usr/", "/etc/", sys.prefix, sys.base_prefix)
        if name and not name.startswith(passed) and not name.endswith((".py", ".pyc")):
            self.add(kind, path=name)


def main() -> None:
    """Runs the script as `python SCRIPT …` would."""
    strategy, folder, script, *arguments = sys.argv[1:]
    gate, record = _Gate(Path(folder)), _Record(Path(folder))
    record.add("start", rank=os.environ.get("RANK", "0"), world=os.environ.get("WORLD_SIZE", "1"))
    if strategy == "live":
        _pace_training(gate)
    else:
        _pace_optimizers(gate, record)
        sys.addaudithook(record.audited)
        _note_signals(gate, record)
    atexit.register(lambda: record.add("end"))
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def _pace_training(gate: _Gate) -> None:
    """Puts the gate before each step of a `Training`."""
    from kfp_volcano.elastic.runtime.training import Training  # noqa: PLC0415 - torch takes long to import

    step = Training.step

    def paced(self: Training, loss: Any) -> bool:
        gate.wait(self.steps)
        return step(self, loss)

    Training.step = paced  # type: ignore[method-assign]


def _pace_optimizers(gate: _Gate, record: _Record) -> None:
    """Puts the gate before each step of PyTorch's optimizers, and notes its files, where it is installed."""
    try:
        import torch  # noqa: PLC0415 - only where scripts may use it
        from torch.optim import optimizer  # noqa: PLC0415
    except ImportError:
        return

    stepped: list[bool] = []  # whether there is an optimizer that steps

    def before(*_: Any) -> None:
        gate.wait(record.steps)

    def after(*_: Any) -> None:
        stepped.append(True)
        record.steps += 1
        record.add("step")

    optimizer.register_optimizer_step_pre_hook(before)
    optimizer.register_optimizer_step_post_hook(after)
    save, load = torch.save, torch.load

    # Both open files in C++, of which Python's audit does not tell.
    def saved(content: Any, file: Any, *args: Any, **options: Any) -> None:
        by_hand = not stepped
        if by_hand:
            gate.wait(record.steps)
        save(content, file, *args, **options)
        if by_hand:
            record.steps += 1
            record.add("step")
        record.file("wrote", file)

    def loaded(file: Any, *args: Any, **options: Any) -> Any:
        record.file("read", file)
        return load(file, *args, **options)

    torch.save, torch.load = saved, loaded  # type: ignore[assignment]


def _note_signals(gate: _Gate, record: _Record) -> None:
    """Notes SIGTERM before whatever handler the script sets sees it."""
    original, current = signal.signal, {signal.SIGTERM: signal.SIG_DFL}

    def noted(number: int, frame: Any) -> None:
        record.add("told")
        gate.told = True
        handler: Any = current[signal.SIGTERM]
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:
            original(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def set_handler(number: Any, handler: Any) -> Any:
        if number != signal.SIGTERM:
            return original(number, handler)
        before, current[signal.SIGTERM] = current[signal.SIGTERM], handler
        return before

    original(signal.SIGTERM, noted)
    signal.signal = set_handler  # type: ignore[assignment]


if __name__ == "__main__":
    main()
