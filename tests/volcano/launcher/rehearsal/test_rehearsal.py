# SPDX-License-Identifier: Apache-2.0
"""Short elastic runs of real scripts: what is right passes, and what is wrong is told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `train`)")
pytest.importorskip("torchft", reason="torchft is not installed (extra `train`)")

from kfp_volcano.elastic.checking.checker import check
from kfp_volcano.volcano.launcher.rehearsal.rehearsal import rehearse
from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPTS = Path(__file__).parent / "scripts"


def played(name: str, *arguments: str) -> Verdict:
    """What came out of a script."""
    script = SCRIPTS / name
    reading = check(script)
    assert reading.mistakes == ()
    told: list[str] = []
    return rehearse(
        script,
        arguments,
        live=reading.live,
        findings=reading.findings,
        workers=(2, 3),
        timeout_s=550.0,
        tell=told.append,
    )


def test_a_right_live_script_trains_as_one_worker_would() -> None:
    """Through a join, a kill and a restart: each sample once, the losses of one worker."""
    verdict = played("live.py")
    assert verdict.right, str(verdict)
    assert "3 workers instead of" in str(verdict)
    assert "the kill of a worker was survived" in str(verdict)
    assert "went on from step" in str(verdict)
    assert (verdict.figures["duplicates"], verdict.figures["missing"]) == (0, 0)
    assert verdict.figures["loss_difference"] < 1e-3


def test_batch_norm_shows_in_the_losses() -> None:
    """The samples are right, and the losses are others."""
    verdict = played("live.py", "batchnorm")
    assert not verdict.right
    assert [line.right for line in verdict.lines][:4] == [True] * 4, str(verdict)
    assert "the losses differ from those of one worker" in str(verdict)


def test_a_script_that_fails_shows_its_last_words() -> None:
    """Before any cluster is needed."""
    verdict = played("live.py", "broken")
    assert not verdict.right
    assert "the script fails by itself, with code 1" in str(verdict)
    assert "RuntimeError: this script is broken" in str(verdict)


def test_a_right_script_that_is_restarted_goes_on_where_it_left() -> None:
    """At another size, after a kill, and after the whole Job was stopped."""
    verdict = played("restarted.py", "/kfp-volcano/volume/model.pt")
    assert verdict.right, str(verdict)
    assert str(verdict).count("it went on from model.pt") == 3
    assert str(verdict).count("where it had left") >= 2


def test_a_script_that_reads_no_checkpoint_is_told() -> None:
    """It writes one and begins from scratch."""
    verdict = played("restarted.py", "/kfp-volcano/volume/model.pt", "forgetful")
    assert not verdict.right
    assert "it began from scratch" in str(verdict)
