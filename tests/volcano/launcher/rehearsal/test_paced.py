# SPDX-License-Identifier: Apache-2.0
"""What a script's process records of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kfp_volcano.volcano.launcher.rehearsal.paced import _Gate, open_gate

SCRIPT = """
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: print("handled", sys.argv[1:]))
Path("partial").write_text("1")
os.replace("partial", "checkpoint")
os.kill(os.getpid(), signal.SIGTERM)
Path("checkpoint").read_text()
import beside
"""


def test_a_process_tells_its_files_its_signal_and_its_end(tmp_path: Path) -> None:
    """And the script runs as if alone: its arguments, its folder, its handler."""
    (tmp_path / "record").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("print('beside')")
    open_gate(tmp_path / "record", upto=None)
    module = "kfp_volcano.volcano.launcher.rehearsal.paced"
    command = [sys.executable, "-m", module, "restart", str(tmp_path / "record"), str(tmp_path / "train.py"), "a b"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["handled ['a b']", "beside"]
    (record,) = (tmp_path / "record" / "processes").glob("*.jsonl")
    events = [json.loads(line) for line in record.read_text().splitlines()]
    told = [(each["kind"], Path(each.get("path", "")).name) for each in events]
    assert (told[0], told[-1]) == (("start", ""), ("end", ""))
    ours = [each for each in told if each[1] in {"partial", "checkpoint"} or each[0] == "told"]
    assert ours == [("wrote", "partial"), ("wrote", "checkpoint"), ("told", ""), ("read", "checkpoint")]


def test_a_gate_holds_nobody_who_was_told_to_leave(tmp_path: Path) -> None:
    """Else a script could not finish its step and save."""
    open_gate(tmp_path, upto=2)
    gate = _Gate(tmp_path)
    gate.wait(1)
    gate.told = True
    gate.wait(2)
