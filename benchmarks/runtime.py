# SPDX-License-Identifier: Apache-2.0
"""What resizing costs a training: pauses, lost steps, samples fed twice or never, overhead; and what others cost.

Real workers of one training come, leave (SIGTERM) and are killed at random, one after the other; a coordinator with a
real lighthouse brings them together. Prints one JSON object a line. Progress, samples, the machine's shape and versions
go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import overhead
import runtime_peers
import torch

import live
from kfp_volcano.schemas import names
from live.job import Job
from live.storm import Change, Storm, longest_pause, steps_lost_to_plans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCRIPT = Path(live.__file__).with_name("train.py")
_LEAST, _MOST = 2, 8
_PACE_S = 0.02
_NEVER_ENDS = 4000


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100, help="joins, leaves and kills")
    parser.add_argument("--peer-events", type=int, default=4, help="of each peer, which take tens of seconds each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["pause", "curve", "overhead"], action="append", help="what to measure")
    options = parser.parse_args()
    wanted = options.only or ["pause", "curve", "overhead"]
    say(f"{os.cpu_count()} processors, {platform.platform()}, torch {torch.__version__}, seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        if "pause" in wanted:
            pauses(Path(folder), options.events, options.peer_events, Random(options.seed))  # noqa: S311 - what happens
        if "curve" in wanted:
            for dtype, bound in (("float32", 1e-4), ("float64", 1e-9)):
                curve(Path(folder), dtype, bound, Random(options.seed))  # noqa: S311 - as above
    if "overhead" in wanted:
        costs()


def pauses(folder: Path, events: int, peer_events: int, random: Random) -> None:
    """Changes of membership, and what they cost; then the peers'."""
    given = {"SIZE": 4096, "BATCH": 64, "EPOCHS": _NEVER_ENDS, "PACE": _PACE_S}
    job = Job(folder / "pause", _SCRIPT, given, settings={"checkpoint_every_s": 5.0})
    changes: list[Change] = []
    try:
        job.start_coordinator()
        storm = Storm(job, random, least=_LEAST, most=_MOST)
        storm.begin(4)
        for number in range(1, events + 1):
            changes.append(storm.change())
            say(f"{number}/{events} {changes[-1].kind} -> {changes[-1].workers} in {changes[-1].seconds:.2f} s")
        for pod in storm.pods:
            job.signal(pod, signal.SIGTERM)
        for pod in storm.pods:
            job.exit_code(pod)
        audit = job.audit(newest := max((job.folder / "checkpoints").glob("step-*")) / "manifest.json")
        about = json.loads(newest.read_text())
    finally:
        job.end()
    commits = [commit.time for commit in audit.commits]
    cost = [longest_pause(change, commits) for change in changes]
    for kind in ("join", "leave", "kill"):
        some = sorted(pause for pause, change in zip(cost, changes, strict=True) if change.kind == kind)
        say(f"{kind}, pauses in s: " + " ".join(f"{pause:.3f}" for pause in some))
    percent = quantiles(cost, n=100, method="inclusive") if len(cost) > 1 else cost * 99
    peers = runtime_peers.measure(folder, random, peer_events, say)
    case = f"{events} random joins, leaves and kills, {_LEAST}-{_MOST} workers, steps of {_PACE_S * 1000:.0f} ms"
    for metric, value in (("pause_p50", percent[49]), ("pause_p99", percent[98])):
        for peer, theirs in peers.items() or [("", [])]:
            tell("runtime", case, metric, value, "s", peer=peer, theirs=_at(theirs, metric))
    lost = steps_lost_to_plans(changes, audit)
    tell("runtime", case, "steps_lost", lost, "planned steps")
    killed = sum(change.kind == "kill" for change in changes)
    tell("runtime", case, "steps_lost_to_kills", (len(audit.lost) - lost) / max(1, killed), "steps a kill")
    undone = about["size"] * about["epochs"] - about["samples"]  # the training was ended before its end
    tell("runtime", case, "duplicates", audit.duplicates, "samples")
    tell("runtime", case, "missing", audit.missing - undone, "samples")
    for problem in audit.problems:
        say(str(problem))


def curve(folder: Path, dtype: str, bound: float, random: Random) -> None:
    """Weights after an epoch of random resizes, against those of one worker."""
    weights: list[torch.Tensor] = []
    given: dict[str, Any] = {"SIZE": 64 * 1500, "BATCH": 64, "EPOCHS": 1, "PACE": _PACE_S, "DTYPE": dtype}
    job = Job(folder / dtype, _SCRIPT, given)
    changes = 0
    try:
        job.start_coordinator()
        storm = Storm(job, random, least=_LEAST, most=6)
        storm.begin(3)
        while len(job.commits()) and max(commit["step"] for commit in job.commits()) < 1100:  # noqa: PLR2004 - leave an end
            storm.change()
            changes += 1
        for pod in storm.pods:
            job.exit_code(pod)
        audit = job.audit()
    finally:
        job.end()
    alone = folder / f"{dtype}-alone"
    alone.mkdir()
    with environment({names.ENV_JOB_DIR: str(alone)}):
        runpy.run_path(str(_SCRIPT), {**given, "PACE": 0.0}, "__main__")
    for place in (folder / dtype, alone):
        state = torch.load(place / "final" / "model.pt", weights_only=True)
        weights.append(torch.cat([value.double().flatten() for value in state.values()]))
    apart = float((weights[0] - weights[1]).norm() / weights[1].norm())
    case = f"an epoch of 1500 steps with {changes} random resizes, {dtype}"
    tell("runtime", case, "curve", apart, "relative", target=bound)
    tell("runtime", case, "duplicates", audit.duplicates, "samples")
    tell("runtime", case, "missing", audit.missing, "samples")


def costs() -> None:
    """What the runtime costs while nothing happens, and what checkpoints cost."""
    torch.set_num_threads(1)
    heavy = overhead.Case(name="one worker, steps of >= 50 ms", width=1024, depth=6, batch=160, steps=5)
    light = overhead.Case(name="one worker, smallest model", width=16, depth=0, batch=16, steps=200)
    with coordinator() as environ, environment({**environ, "OMP_NUM_THREADS": "1"}):
        for case in (heavy, light):
            plain, elastic = overhead.measure(case, 20)
            more = median(b / a - 1 for a, b in zip(plain, elastic, strict=True)) * 100
            step = f"{median(plain) * 1000:.2f} ms"
            tell("runtime", f"{case.name}, {step}", "overhead", more, "%")
        # A round is a checkpoint: what it costs is all that is added to a round, spread over that round's steps.
        often = {names.ENV_ELASTICITY: json.dumps({"checkpoint_every_s": 0.0})}
        saving = overhead.Case(
            name="one worker, a checkpoint each step that can take one", width=1024, depth=6, batch=160, steps=5
        )
        with environment(often):
            plain, elastic = overhead.measure(saving, 20)
        tell(
            "runtime",
            saving.name,
            "checkpoint_stall",
            median(b / a - 1 for a, b in zip(plain, elastic, strict=True)) * 100,
            "%",
        )


@contextmanager
def coordinator() -> Iterator[dict[str, str]]:
    """A lighthouse; gives a worker's environment."""
    program = (
        "import sys; from kfp_volcano.elastic.runtime.coordinator import Coordinator\n"
        "coordinator = Coordinator('127.1.0.5', lambda progress: None); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError("the coordinator does not start")
        yield {names.ENV_COORDINATOR: "127.1.0.5", names.ENV_POD: "bench-0", names.ENV_POD_IP: "127.1.0.6"}
        process.kill()


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the time being."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _at(pauses: Sequence[float], metric: str) -> float:
    """A quantile of a peer's pauses, of which there are few: the middle, or the longest."""
    if not pauses:
        return 0.0
    return median(pauses) if metric == "pause_p50" else max(pauses)


def tell(
    bench: str,
    case: str,
    metric: str,
    value: float,
    unit: str,
    *,
    peer: str = "",
    theirs: float = 0.0,
    target: float | None = None,
) -> None:
    """Prints a line."""
    digits = float(f"{value:.4g}")
    line: dict[str, Any] = {"bench": bench, "case": case, "metric": metric, "value": digits, "unit": unit}
    if target is not None:
        line["target"] = target
    if peer:
        line |= {
            "peer": peer,
            "peer_value": float(f"{theirs:.4g}"),
            "ratio": round(theirs / value, 2) if value else None,
        }
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    """To whoever watches."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
