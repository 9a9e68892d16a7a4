# SPDX-License-Identifier: Apache-2.0
"""A search on this machine, as a user starts it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="Ray Tune is not installed"),
]

JOB = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: search}
spec:
  framework: pytorch
  image: registry.example/search:1.0
  command: [python, train.py]
  queue: research
  env: {LR: "0.05"}
  roles: {worker: {replicas: 1, resources: {cpu: 1, memory: 1Gi, gpu: 1}}}
  elasticity: {strategy: live, batch: {global: 4}, grace: 5s}
  checkpoint: {volume: checkpoints}
  faults: {retries: 1}
"""

TRAIN = '''
"""Who begins first is bad, the second waits in mid-training until the third has begun: on the GPU of the first."""

import os
import time
from pathlib import Path

rate = float(os.environ["LR"])
here = Path(__file__).parent
ACCURACY = {"first": 0.1, "second": 0.5, "third": 0.8}
for turn in ACCURACY:
    try:
        (here / turn).touch(exist_ok=False)
        break
    except FileExistsError:
        continue

import torch

from kfp_volcano.elastic.runtime import Training


def wait(file):
    while not (here / file).exists():
        time.sleep(0.1)


model = torch.nn.Linear(2, 1)
training = Training(model, torch.optim.SGD(model.parameters(), lr=rate), size=20, batch=4, epochs=4)
for step, share in enumerate(training):
    if turn == "first" and step > 1:
        wait("half-way")
        time.sleep(3)
    if turn == "second":
        time.sleep(0.6)  # for reports, of which there are two a second
    if turn == "second" and step == 10:
        (here / "half-way").touch()
        wait("third")
    training.step(model(torch.ones(len(share.ids), 2)).mean())
    training.log(accuracy=ACCURACY[turn] + (0.3 if turn == "second" and step > 10 else 0.0))
'''


def search(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kfp_volcano", "search", str(folder / "job.yaml"), "--local"]
    done = subprocess.run(
        [*command, "--nodes", "1x2", "--out", str(folder / "out"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        cwd=folder,
    )
    assert "/ray/" not in done.stderr, done.stderr
    return done


def results(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "out" / "results.json").read_text())
    return found


def test_a_bad_trial_is_given_up_and_who_waited_trains_on_its_gpu(tmp_path: Path) -> None:
    """Of four trials on two GPUs one is bad, one fails; asked again only what failed is left to do."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text(TRAIN)
    rates = ("--param", "env.LR=0.1,0.2,0.3,none")
    done = search(tmp_path, *rates)
    assert done.returncode == 0, done.stderr
    by_state = {state: [each for each in results(tmp_path) if each["state"] == state] for state in ("pruned", "failed")}
    (bad,) = by_state["pruned"]
    (failed,) = by_state["failed"]
    assert bad["value"] == 0.1
    assert bad["percent"] < 100
    assert failed["values"] == {"env.LR": "none"}
    assert "could not convert string to float: 'none'" in failed["message"]
    assert sorted(each["value"] for each in results(tmp_path) if each["state"] == "ended") == [0.8, 0.8]
    best = yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["spec"]["env"]["LR"]
    assert best in {each["values"]["env.LR"] for each in results(tmp_path) if each["state"] == "ended"}
    assert "it waits: " in "".join(path.read_text() for path in (tmp_path / "out" / "trials").iterdir())

    again = search(tmp_path, *rates)
    assert again.returncode == 0, again.stderr
    assert "1 of 4 trials are left" in again.stderr
    assert {each["trial"]: each["attempt"] for each in results(tmp_path) if each["attempt"] > 1} == {4: 2}
    other = search(tmp_path, "--param", "env.LR=1,2")
    assert other.returncode == 2
    assert "holds another search" in other.stderr
    left = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert str(tmp_path) not in " ".join(word for words in left for word in words)
