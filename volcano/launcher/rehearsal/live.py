# SPDX-License-Identifier: Apache-2.0
"""The scenario of strategy live: join, kill, restart of the whole Job, and the same training by one worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.volcano.launcher.rehearsal.paced import open_gate
from kfp_volcano.volcano.launcher.rehearsal.runs import Ledgers, differing, pause
from kfp_volcano.volcano.launcher.rehearsal.stage import PACED, last_lines
from kfp_volcano.volcano.launcher.rehearsal.verdict import RehearsalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.volcano.launcher.rehearsal.stage import Stage
    from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict

__all__ = ["play", "reasons_to_differ"]

MOST_STEPS = 50
"""Of a training only its first steps are played: by then a wrong sum or order shows, and rounding does not yet."""
LEAST_STEPS = 10
TOLERANCE = 1e-3
"""Relative, of losses in float32 that are summed in another order: about 1e-6 a step, growing."""
_PACE_S = 0.25
_LOOK_S = 0.1
_WHY = {
    "KV101": "the rate is computed from its last value",
    "KV102": "the rate follows the size",
    "KV103": "the batch follows the size",
    "KV203": "an order has no seed",
    "KV204": "a loader has an order of its own",
    "KV205": "what is fed is not the share",
    "KV303": "the weights have no seed",
    "KV304": "random numbers follow the rank",
    "KV504": "gradients are applied beside training.step",
    "KV505": "gradients are clipped before the sum",
    "KV508": "the loss is no mean over the share",
    "KV601": "batch norm keeps statistics by worker",
}
_NOISE = "KV602"


def play(
    stage: Stage, verdict: Verdict, arguments: Sequence[str], findings: Sequence[Finding], deadline: float
) -> None:
    """Plays the scenario and adds what came out of it.

    Raises:
        RehearsalError: the script failed, or did not come where it had to in time.
    """
    fixed = _by_one_worker(stage, arguments, deadline)
    last = min(fixed.total, MOST_STEPS)
    join, kill, leave = last // 5, 2 * last // 5, 3 * last // 5
    stage.tell(f"training {last} of {fixed.total} steps with {stage.least} to {counted(stage.most, 'worker')}")

    stage.open(0)
    stage.submit()
    stage.until(lambda: len(_read(stage).starts) >= stage.least, f"{stage.least} workers to begin")
    stage.open(join, _PACE_S)
    stage.until(lambda: _read(stage).steps >= join, f"step {join} by {counted(stage.least, 'worker')}")
    _join(stage, verdict, kill)
    _kill(stage, verdict, leave)
    _restart(stage, verdict, last, all_steps=last == fixed.total)

    _samples(stage, verdict)
    _losses(stage, verdict, fixed, findings)


def _read(stage: Stage) -> Ledgers:
    return Ledgers(stage.job_dir)


def _by_one_worker(stage: Stage, arguments: Sequence[str], deadline: float) -> Ledgers:
    """The ledgers of the same training at a fixed size: one worker, without a Job."""
    stage.tell("training with one worker, to compare with")
    folder, log = stage.folder / "fixed", stage.folder / "fixed.log"
    folder.mkdir()
    open_gate(folder, upto=MOST_STEPS)
    env = {name: value for name, value in os.environ.items() if not name.startswith("KFP_VOLCANO_")}
    env |= {names.ENV_JOB_DIR: str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", PACED, "live", str(folder), str(stage.script), *arguments],
            cwd=stage.script.parent,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while process.poll() is None and Ledgers(folder).steps < MOST_STEPS:
            if time.monotonic() > deadline:
                raise RehearsalError(f"one worker alone was too slow (--timeout):\n{last_lines(log)}")
            time.sleep(_LOOK_S)
        ended = process.poll()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
    ledgers = Ledgers(folder)
    if ended:
        raise RehearsalError(f"the script fails by itself, with code {ended}:\n{last_lines(log)}")
    if not ledgers.starts:
        raise RehearsalError(f"the script never iterates over a Training:\n{last_lines(log)}")
    if ledgers.total < LEAST_STEPS:
        raise RehearsalError(
            f"a training of {ledgers.total} steps is too short: give it {LEAST_STEPS} or more (--args)"
        )
    return ledgers


def _join(stage: Stage, verdict: Verdict, upto: int) -> None:
    """New workers come while it trains."""
    before, few = _read(stage).steps, _read(stage).commits[-1]["world"]
    stage.resize(stage.most)
    stage.until(lambda: len(_read(stage).starts) >= stage.most, "the new workers to begin")
    opened = stage.open(upto, _PACE_S)
    stage.until(lambda: _read(stage).steps >= upto, f"step {upto} after the resize")
    ledgers = _read(stage)
    workers = ledgers.workers(since=opened)
    still = pause(ledgers.commits, few, opened)
    told = "" if still is None else f"; the resize paused it {still:.2f} s"
    verdict.add(
        f"trained on with {counted(workers, 'worker')} instead of {few} after step {before}{told}",
        right=workers == stage.most,
        resize_pause_s=still,
    )


def _kill(stage: Stage, verdict: Verdict, upto: int) -> None:
    """A worker is killed while it trains, and comes back."""
    pod = stage.pods()[-1]
    began = len(_read(stage).starts)
    opened = stage.open(upto, _PACE_S)
    killed = stage.kill(pod)
    stage.until(lambda: _read(stage).steps >= upto, f"step {upto} after a worker was killed")
    stage.until(lambda: len(_read(stage).starts) > began, "the killed worker to begin again")
    ledgers = _read(stage)
    still = pause(ledgers.commits, stage.most, opened)
    told = "" if still is None else f", after {still:.2f} s without a step"
    verdict.add(
        f"the kill of a worker was survived: the others went on to step {ledgers.steps}{told}",
        right=bool(killed) and ledgers.steps >= upto,
        kill_pause_s=still,
    )


def _restart(stage: Stage, verdict: Verdict, last: int, *, all_steps: bool) -> None:
    """The whole Job is stopped and started again."""
    reached = _read(stage).steps
    stage.open(max(reached + 1, last - 2), 2 * _PACE_S)
    stage.stop()
    before = _read(stage)
    stage.open(None if all_steps else last)
    stage.submit()
    stage.until(lambda: len(_read(stage).starts) > len(before.starts), "the Job to begin again")
    begun = _read(stage).starts[len(before.starts)]["step"]
    lost = before.steps - begun
    verdict.add(
        f"the restart of the whole Job went on from step {begun}"
        + (f", {lost} steps before where it was" if lost else ", where it had left"),
        right=begun > 0 and lost <= 1,
        restart_step=begun,
        restart_steps_lost=lost,
    )
    stage.until(lambda: _read(stage).steps >= last, f"step {last} after the restart")


def _samples(stage: Stage, verdict: Verdict) -> None:
    audit = _read(stage).audit()
    assert audit is not None and audit.commits  # noqa: S101, PT018 - steps were waited for
    committed = audit.commits[-1].samples
    missing = max(0, committed - (audit.samples_seen - audit.duplicates))
    once = f"{audit.duplicates} of them twice" if audit.duplicates else "each once in its epoch"
    verdict.add(
        f"{audit.samples_seen} samples were seen, {once}" + (f"; {missing} are missing" if missing else ""),
        right=not audit.duplicates and not missing,
        samples=audit.samples_seen,
        duplicates=audit.duplicates,
        missing=missing,
    )
    for problem in audit.problems:
        verdict.add(f"the ledgers: {problem}", right=False)


def _losses(stage: Stage, verdict: Verdict, fixed: Ledgers, findings: Sequence[Finding]) -> None:
    """The losses step by step beside those of one worker: equal losses come from equal weights."""
    ours, theirs = _read(stage).audit(), fixed.audit()
    assert ours is not None and theirs is not None  # noqa: S101, PT018 - steps were waited for
    first, largest = differing(
        [commit.loss for commit in ours.commits], [commit.loss for commit in theirs.commits], TOLERANCE
    )
    steps = min(len(ours.commits), len(theirs.commits))
    if first is None:
        verdict.add(
            f"the losses of all {steps} steps are those of one worker, within {largest:.1e}", loss_difference=largest
        )
        return
    reasons, excused = reasons_to_differ(findings)
    verdict.add(
        f"the losses differ from those of one worker from step {first} on, by up to {largest:.1e}; likely because "
        + "; ".join(reasons),
        right=excused,
        loss_difference=largest,
    )


def reasons_to_differ(findings: Sequence[Finding]) -> tuple[list[str], bool]:
    """What in the script may make the losses others than one worker's, with its place; whether that is no mistake."""
    found = {finding.code: finding for finding in findings}
    reasons = [f"{reason} ({found[code].path}:{found[code].line})" for code, reason in _WHY.items() if code in found]
    if reasons:
        return reasons, False
    if noise := found.get(_NOISE):
        return [f"{noise.what} ({noise.path}:{noise.line}), which is no mistake"], True
    return ["something of the script depends on the worker: random numbers, statistics, data, the learning rate"], False
