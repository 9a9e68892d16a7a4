# SPDX-License-Identifier: Apache-2.0
"""What a TrainingJob's schema cannot say: how values have to fit each other, and the names that are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import metadata_rules, monitor_rules, pod_rules, role_rules
from kfp_volcano.schemas.batch import Batch
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.sound import Sound
from kfp_volcano.schemas.structure import Finding, Unknown
from kfp_volcano.schemas.training_job import FOREVER
from kfp_volcano.schemas.wire import default_strategy
from kfp_volcano.schemas.wording import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_TEN_YEARS = 3650 * 86400.0
_STRATEGIES = {
    "pytorch": ("live", "restart", "fixed"),
    "tensorflow": ("restart", "fixed"),
    "mpi": ("restart", "fixed"),
    "ray": ("live", "fixed"),
    "custom": ("restart", "fixed"),
}


def findings(value: Any, broken: Collection[Path]) -> Iterator[Finding]:
    """What breaks a rule in a document, beyond the places its schema already found `broken`."""
    sound = Sound(value, broken)
    yield from metadata_rules.findings(value.get("metadata") if isinstance(value, dict) else {}, ("metadata",))
    strategy = _strategy(sound)
    yield from _strategy_findings(sound, strategy)
    yield from role_rules.findings(sound, strategy)
    yield from pod_rules.findings(sound)
    yield from _faults(sound, strategy)
    yield from _checkpoint(sound, strategy)
    yield from monitor_rules.findings(sound, strategy)
    yield from _batch(sound)
    if sound.get("spec", "mpi") is not None and sound.get("spec", "framework") not in (None, "mpi"):
        yield Finding(("spec", "mpi"), "is for framework mpi alone", "leave it out")
    for path, least, bound in _DURATIONS:
        yield from _duration(sound, path, least, bound)


def _strategy(sound: Sound) -> str | None:
    framework = sound.get("spec", "framework")
    default = None if framework is None else default_strategy(framework)
    strategy: str | None = sound.get("spec", "elasticity", "strategy", default=default)
    return strategy


def _strategy_findings(sound: Sound, strategy: str | None) -> Iterator[Finding]:
    framework = sound.get("spec", "framework")
    path: Path = ("spec", "elasticity", "strategy")
    allowed = _STRATEGIES.get(framework, ())
    if framework is not None and strategy is not None and strategy not in allowed:
        needs = " or ".join(name for name, those in _STRATEGIES.items() if strategy in those)
        yield Finding(path, f"{strategy} needs framework {needs}, not {framework}", f"one of {', '.join(allowed)}")
    elif strategy == "live" and framework == "pytorch" and sound.absent("spec", "checkpoint"):
        yield Finding(
            ("spec", "checkpoint"),
            "is missing: strategy live keeps the Job's checkpoints and ledgers on a volume",
            "checkpoint: {volume: <name of a PersistentVolumeClaim>}, or strategy: fixed",
        )
    if sound.get("spec", "data", "sharding") == "proportional" and strategy not in (None, "live"):
        path = ("spec", "data", "sharding")
        yield Finding(path, f"proportional is for strategy live, not {strategy}", "uniform, or strategy: live")
    if sound.get("spec", "elasticity", "agent") is not None and strategy not in (None, "restart"):
        path = ("spec", "elasticity", "agent")
        yield Finding(path, f"is for strategy restart, not {strategy}", "leave it out, or strategy: restart")
    replicas: Path = ("spec", "roles", "worker", "replicas")
    least, most = sound.get(*replicas, "min"), sound.get(*replicas, "max")
    if strategy == "fixed" and least is not None and most is not None and least < most:
        other = [name for name in allowed if name != "fixed"]
        yield Finding(
            replicas,
            f"is a range, but strategy fixed never resizes (framework {framework})",
            f"one number, e.g. {least}, or strategy: {' or '.join(other)}" if other else f"one number, e.g. {least}",
        )


def _checkpoint(sound: Sound, strategy: str | None) -> Iterator[Finding]:
    """What the live runtime does with checkpoints means nothing to programs that write their own."""
    path: Path = ("spec", "checkpoint")
    framework = sound.get("spec", "framework")
    if strategy not in (None, "live") or framework not in (None, "pytorch"):
        for key in ("best", "bestMode", "url", "from"):
            if sound.get(*path, key) is not None:
                words = "is for pytorch with strategy live: other programs save by themselves"
                yield Finding((*path, key), words, "leave it out")
    elif sound.get(*path, "bestMode") is not None and sound.absent(*path, "best"):
        yield Finding((*path, "bestMode"), "says of no metric which value is the best", "best: <name of a metric>")


def _faults(sound: Sound, strategy: str | None) -> Iterator[Finding]:
    """A Job that resizes deletes pods itself: nothing that a deleted pod sets off may restart it or end it."""
    path: Path = ("spec", "faults")
    for key, allowed in (("failed", ("retry", "fail")), ("evicted", ("replace",))):
        then = sound.get(*path, key)
        if then is not None and strategy not in (None, "fixed") and then not in allowed:
            remedy = f"{' or '.join(allowed)}, or strategy: fixed"
            yield Finding((*path, key), f"{then} would be set off by a scale-down of strategy {strategy}", remedy)
    failed, evicted = sound.get(*path, "failed"), sound.get(*path, "evicted")
    if strategy == "fixed" and failed in ("restartJob", "fail") and evicted not in (None, failed):
        words = f"with failed: {failed} a pod that is taken away has failed too"
        yield Finding((*path, "evicted"), f"cannot be {evicted}: {words}", f"{failed}, or failed: retry")
    if sound.get(*path, "pending", "then") == "restartJob" and strategy not in (None, "fixed"):
        yield Finding((*path, "pending", "then"), f"restartJob is not for strategy {strategy}", "fail or abort")
    for key in ("straggler", "hang"):
        if sound.get(*path, key) is not None and strategy not in (None, "live"):
            words = f"only the live runtime knows how long each worker takes, and the strategy is {strategy}"
            yield Finding((*path, key), words, "leave it out, or strategy: live")


def _batch(sound: Sound) -> Iterator[Finding]:
    path: Path = ("spec", "elasticity", "batch")
    value = sound.get(*path)
    if value and not any(isinstance(part, Unknown) for part in (*value.values(), *value.get("sizes", ()))):
        for key, what, remedy in typed(Batch, value).problems():
            yield Finding((*path, key), what, remedy)


_DURATIONS: tuple[tuple[Path, float, str], ...] = (
    (("spec", "elasticity", "cooldown"), 0.0, "0s"),
    (("spec", "elasticity", "grace"), 1.0, "1s"),
    (("spec", "checkpoint", "every"), 0.001, "1ms"),
    (("spec", "faults", "hang"), 1.0, "1s"),
    (("spec", "faults", "timeout"), 1.0, "1s"),
    (("spec", "faults", "keepFor"), 0.0, "0s"),
    (("spec", "faults", "pending", "after"), 1.0, "1s"),
    (("spec", "faults", "preflight", "timeout"), 1.0, "1s"),
    (("spec", "faults", "preflight", "unfitFor"), 0.0, "0s"),
    (("spec", "faults", "cleanup", "timeout"), 1.0, "1s"),
)
"""Where durations are, and the least each may be."""


def _duration(sound: Sound, path: Path, least: float, bound: str) -> Iterator[Finding]:
    value = sound.get(*path)
    if value is not None and value != FOREVER and not least <= duration(value) <= _TEN_YEARS:
        yield Finding(path, f"{shown(value)} is outside what is possible", f"at least {bound}, at most ten years")
