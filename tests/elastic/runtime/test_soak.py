# SPDX-License-Identifier: Apache-2.0
"""Everything that may happen to the workers of a training, for minutes on end; the model that comes out is as good."""

from __future__ import annotations

import runpy
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import live
from kfp_volcano.schemas import names
from live.job import Job
from live.network import Loopback, Namespaces
from live.storm import Storm

if TYPE_CHECKING:
    from live.storm import Kind

_SCRIPT = Path(live.__file__).with_name("train.py")
_PACE_S = 0.02
_STEPS_AN_EPOCH = 250
_HELD_OUT = 20_000


def accuracy(folder: Path) -> float:
    """Of the final model, on samples that it was not trained on."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    model.load_state_dict(torch.load(folder / "final" / "model.pt", weights_only=True))
    x = torch.randn(_HELD_OUT, 16, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == x[:, :4].argmax(dim=1)).float().mean())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_whatever_happens_each_sample_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """No duplicates, none missing, and an accuracy no further from a fixed-size run's than chance explains."""
    minutes, seed = float(pytestconfig.getoption("minutes")), int(pytestconfig.getoption("soak_seed"))
    can_cut = Namespaces.available()
    faults: list[Kind] = ["hang", "coordinator", *(["cut"] if can_cut else [])]
    cuts = "with cut networks" if can_cut else "WITHOUT cut networks: they need root, ip and iptables"
    print(f"seed {seed}, {minutes:g} minutes; {cuts}", flush=True)
    # Half of the time goes by in pauses.
    epochs = max(2, round(minutes * 60 / 2 / (_PACE_S * 1.2) / _STEPS_AN_EPOCH))
    given: dict[str, Any] = {"SIZE": 64 * _STEPS_AN_EPOCH, "BATCH": 64, "EPOCHS": epochs, "PACE": _PACE_S}
    network = Namespaces() if can_cut else Loopback()
    job = Job(tmp_path / "soak", _SCRIPT, given, settings={"checkpoint_every_s": 5.0}, network=network)
    happened: dict[str, int] = {}
    try:
        job.start_coordinator()
        storm = Storm(job, Random(seed), least=2, most=6, faults=faults)
        storm.begin(3)
        # The last epoch is for the last ones to come together again.
        while job.commits()[-1]["step"] < (epochs - 1) * _STEPS_AN_EPOCH:
            change = storm.change()
            happened[change.kind] = happened.get(change.kind, 0) + 1
            print(f"{change.kind} -> {change.workers} workers, {change.seconds:.1f} s", flush=True)
        codes = [job.exit_code(pod) for pod in storm.pods]
        audit = job.audit()
    finally:
        job.end()
    alone = tmp_path / "alone"
    monkeypatch.setenv(names.ENV_JOB_DIR, str(alone))
    alone.mkdir()
    runpy.run_path(str(_SCRIPT), {**given, "PACE": 0.0}, "__main__")
    ours, fixed = accuracy(job.folder), accuracy(alone)
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(happened.items()))
    print(f"{told}; {len(audit.lost)} steps done again; accuracy {ours:.4f}, fixed size {fixed:.4f}", flush=True)
    assert codes == [0] * len(codes)
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert abs(ours - fixed) <= 3 * (2 * fixed * (1 - fixed) / _HELD_OUT) ** 0.5
