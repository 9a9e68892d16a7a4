# SPDX-License-Identifier: Apache-2.0
"""The loop as its users meet it: alone, with wrong settings, used wrongly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.runtime import LEFT, Training
from kfp_volcano.elastic.runtime.surroundings import Surroundings, cpu_share
from kfp_volcano.elastic.sharding import Mixture
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.batch import Batch

if TYPE_CHECKING:
    from pathlib import Path


def make(**settings: Any) -> tuple[Training, torch.nn.Module]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Training(model, optimizer, **{"size": 10, "batch": 4, "epochs": 2, **settings}), model


def loss(model: torch.nn.Module, ids: Any) -> torch.Tensor:
    return (model(torch.ones(10, 4)[ids]) ** 2).mean()


def test_without_a_job_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain script trains all batches and leaves no file."""
    monkeypatch.chdir(tmp_path)
    training, model = make()
    ends = [share.ends_epoch for share in training if training.step(loss(model, share.ids))]
    assert ends == [False, False, True] * 2
    assert (training.steps, training.samples, training.epoch) == (6, 20, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_finished_training_is_not_done_again(tmp_path: Path) -> None:
    """The second run of the same script finds the final model and yields nothing."""
    training, model = make(job_dir=tmp_path)
    for share in training:
        training.step(loss(model, share.ids))
        training.log(loss=1.0)
    manifest = json.loads((tmp_path / "final" / "manifest.json").read_text())
    assert (manifest["step"], manifest["samples"], manifest["metrics"]) == (6, 20, {"loss": 1.0})
    assert list(make(job_dir=tmp_path)[0]) == []


def test_sigterm_ends_the_step_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """A lone worker leaves a checkpoint, exits with 143, and is continued where it stopped."""
    training, model = make(job_dir=tmp_path)

    def train() -> None:
        for share in training:
            if training.steps == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            training.step(loss(model, share.ids))

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == LEFT
    again, model = make(job_dir=tmp_path)
    assert len([again.step(loss(model, share.ids)) for share in again]) == 3


def test_learning_rate_is_a_function_of_samples() -> None:
    """A schedule sees the samples committed, whatever the number of steps."""
    seen: list[int] = []
    training, model = make(lr=lambda samples: seen.append(samples) or 0.1)
    for share in training:
        training.step(loss(model, share.ids))
    assert seen == [0, 4, 8, 10, 14, 18]


def test_the_spec_comes_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """`elasticity.batch.global` of the TrainingJob overrides the script's batch."""
    monkeypatch.setenv(names.ENV_ELASTICITY, json.dumps({"batch": 5, "of_a_newer_version": 1}))
    assert len(next(iter(make()[0])).ids) == 5


@pytest.mark.parametrize(
    ("settings", "paths"),
    [({"batch": None}, ["batch"]), ({"size": 0, "batch": 0}, ["size", "batch"]), ({"epochs": 0}, ["epochs"])],
)
def test_wrong_settings_are_named(settings: dict[str, Any], paths: list[str]) -> None:
    """Every wrong argument is a problem with its name."""
    with pytest.raises(SpecError) as caught:
        make(**settings)
    assert [problem.path for problem in caught.value.problems] == paths


def test_a_wrong_environment_is_named(tmp_path: Path) -> None:
    """A job folder that is a file, an address that is missing, settings that are no JSON: all at once."""
    (tmp_path / "file").touch()
    environ = {
        names.ENV_COORDINATOR: "job-coordinator-0.job",
        names.ENV_POD: "w-0",
        names.ENV_JOB_DIR: str(tmp_path / "file"),
        names.ENV_ELASTICITY: "{",
    }
    with pytest.raises(SpecError) as caught:
        Surroundings.read(environ)
    found = [problem.path for problem in caught.value.problems]
    assert found == [names.ENV_POD_IP, str(tmp_path / "file"), names.ENV_ELASTICITY]


def test_a_script_with_wrong_settings_ends_with_2() -> None:
    """Uncaught, the error is a message without a traceback, and the exit code says that a retry cannot help."""
    program = (
        "import torch; from kfp_volcano.elastic.runtime import Training; m = torch.nn.Linear(1, 1)\n"
        "Training(m, torch.optim.SGD(m.parameters(), lr=1.0), size=0, batch=1, epochs=1)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "training plan: size: 0 is not a whole number of at least 1"


def test_a_share_must_be_trained_on() -> None:
    """A loop that forgets `step`, or calls it twice, is told so."""
    training, _ = make()
    with pytest.raises(RuntimeError, match=r"step\(loss\)"):
        list(training)
    training, model = make()
    share = next(iter(training))
    training.step(loss(model, share.ids))
    with pytest.raises(RuntimeError, match="once for each share"):
        training.step(loss(model, share.ids))


def test_threads_follow_the_pods_share_of_the_processors() -> None:
    """Pods on one machine take one thread each; whoever sets OMP_NUM_THREADS, or has no Job, decides alone."""
    environ = {names.ENV_COORDINATOR: "127.0.3.1", names.ENV_POD: "w-0", names.ENV_POD_IP: "127.0.3.2"}
    assert cpu_share(Surroundings.read(environ), environ) == 1
    assert cpu_share(Surroundings.read(environ), {"OMP_NUM_THREADS": "4"}) is None
    assert cpu_share(Surroundings.read({}), {}) is None


def audited(folder: Path) -> ledger.Audit:
    """The verdict on a training that has ended."""
    files = {path.name: path.read_text().splitlines() for path in (folder / "ledger").glob("*.jsonl")}
    return ledger.audit(files, json.loads((folder / "final" / "manifest.json").read_text()))


def test_classes_come_in_proportion(tmp_path: Path) -> None:
    """A mixture decides what is fed, and what the verdict takes for due."""
    labels = [0] * 9 + [1]
    training, model = make(job_dir=tmp_path, size=None, order=Mixture(labels, {0: 1, 1: 1}))
    rare = 0
    for share in training:
        rare += int((share.ids == 9).sum())
        training.step(loss(model, share.ids))
    audit = audited(tmp_path)
    assert (audit.duplicates, audit.missing, audit.problems, audit.samples_seen) == (0, 0, (), 20)
    assert rare == 10


def test_an_incomplete_batch_may_be_dropped(tmp_path: Path) -> None:
    """Every step has a whole batch; what was left out is not missing."""
    training, model = make(job_dir=tmp_path, last="drop")
    ends = []
    for share in training:
        assert len(share.ids) == 4
        training.step(loss(model, share.ids))
        ends.append(share.ends_epoch)
    assert ends == [False, True] * 2
    audit = audited(tmp_path)
    assert (audit.duplicates, audit.missing, audit.samples_expected, audit.samples_seen) == (0, 0, 16, 16)


@pytest.mark.parametrize("parts", [1, 3])
def test_an_incomplete_batch_may_be_filled_up(tmp_path: Path, parts: int) -> None:
    """Copies fill it up for code that wants one shape, and change nothing in the model, in one part or in several."""
    models = []
    for last in ("keep", "pad"):
        batch = Batch(size=4, max_per_worker=2) if parts > 1 else 4
        training, model = make(job_dir=tmp_path / last, last=last, batch=batch)
        data = torch.randn(10, 4, generator=torch.Generator().manual_seed(3))
        for share in training:
            assert last == "keep" or parts > 1 or len(share.ids) == 4
            training.step(share.mean((model(data[share.ids]) ** 2).squeeze(1)))
        models.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        audit = audited(tmp_path / last)
        assert (audit.duplicates, audit.missing, audit.samples_seen) == (0, 0, 20)
    torch.testing.assert_close(models[0], models[1])


def test_a_training_of_unknown_size_is_refused() -> None:
    """Either its size or its order says how many samples there are."""
    with pytest.raises(SpecError, match="size"):
        make(size=None)
