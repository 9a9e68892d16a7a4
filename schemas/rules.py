"""What a TrainingJob's schema cannot say: how values have to fit each other, and the names that are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import duration, quantity
from kfp_volcano.schemas.structure import Finding, Unknown
from kfp_volcano.schemas.wire import FOREVER, default_strategy
from kfp_volcano.schemas.wording import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["PLANNED", "findings"]

PLANNED: frozenset[Path] = frozenset(
    {
        ("spec", "placement"),
        ("spec", "monitor"),
        ("spec", "faults", "preflight"),
        ("spec", "roles", "*", "resources", "rdma"),
        *(("spec", "framework", name) for name in ("tensorflow", "mpi", "ray")),
        ("spec", "elasticity", "strategy", "restart"),
    }
)
"""Keys and values of the format's design that this version refuses by name."""

_LONGEST_NAME = 63
_ENV_PREFIX = "KFP_VOLCANO_"
_LABEL_PREFIXES = ("kfp-volcano/", "app.kubernetes.io/", "volcano.sh/")
_TEN_YEARS = 3650 * 86400.0
_LARGEST_QUANTITY = 2**63 - 1


class _Sound:
    """The values of a document with which nothing is wrong so far and that are known.

    A rule asks for what it needs; it is skipped where that is broken (which has been told) or not known yet.
    """

    def __init__(self, value: Any, broken: Collection[Path]) -> None:
        self._value = value
        self._broken = broken

    def get(self, *path: str | int) -> Any:
        """The value at a path; None where there is none, or none to rely on."""
        if any(bad[: len(path)] == path or path[: len(bad)] == bad for bad in self._broken):
            return None
        value = self._value
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return None if isinstance(value, Unknown) else value

    def absent(self, *path: str | int) -> bool:
        """Whether it is certain that nothing is written at a path."""
        value = self._value
        for depth, part in enumerate(path):
            if not isinstance(value, dict) or path[:depth] in self._broken:
                return False
            if part not in value:
                return True
            value = value[part]
        return False

    def keys(self, *path: str | int) -> list[str]:
        """The keys of the mapping at a path, also where something is wrong inside it."""
        value = self._value
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return list(value) if isinstance(value, dict) else []


def findings(value: Any, broken: Collection[Path]) -> Iterator[Finding]:
    """What breaks a rule in a document, beyond the places its schema already found `broken`."""
    sound = _Sound(value, broken)
    for key in sound.keys("metadata", "labels"):
        if key.startswith(_LABEL_PREFIXES) and key != names.TEAM_LABEL:
            yield Finding(("metadata", "labels", key), "is a label that others set", "use a prefix of your own")
    yield from _env(sound, "spec", "env")
    for role in sound.keys("spec", "roles"):
        yield from _role(sound, role)
    yield from _strategy(sound)
    for path, least, bound in _DURATIONS:
        yield from _duration(sound, path, least, bound)


def _env(sound: _Sound, *path: str | int) -> Iterator[Finding]:
    for key in sound.keys(*path):
        if key.startswith(_ENV_PREFIX):
            yield Finding(
                (*path, key), "is set by kfp-volcano itself", f"names that begin with {_ENV_PREFIX} are taken"
            )


def _role(sound: _Sound, role: str) -> Iterator[Finding]:
    path = ("spec", "roles", role)
    replicas = (*path, "replicas")
    if role in names.RESERVED_TASKS:
        yield Finding(path, "is the name of a task that kfp-volcano makes itself", "call the role otherwise")
    if role == "worker":
        yield from _range(sound, replicas)
    else:
        yield from _fixed_role(sound, role, replicas)
    yield from _env(sound, *path, "env")
    for resource in ("cpu", "memory"):
        asked = sound.get(*path, "resources", resource)
        if asked is not None and not 0 < quantity(asked) <= _LARGEST_QUANTITY:
            yield Finding(
                (*path, "resources", resource), f"no pod can have {shown(asked)}", "more than 0, less than 2^63"
            )


def _fixed_role(sound: _Sound, role: str, replicas: Path) -> Iterator[Finding]:
    count = sound.get(*replicas)
    if isinstance(count, dict):
        count = None
        yield Finding(replicas, "is a range, but only worker can be resized", "write a number")
    # Pods are named <job>-<role>-<index>, and job_name leaves room for the tasks that kfp-volcano makes.
    longest = names.pod_name(names.job_name("x" * _LONGEST_NAME, ""), role, int(count or 1) - 1)
    if sound.get(*replicas[:-1]) is not None and len(longest) > _LONGEST_NAME:
        room = len(role) - (len(longest) - _LONGEST_NAME)
        yield Finding(
            replicas[:-1], "makes the names of its pods longer than 63 characters", f"at most {room} characters"
        )


def _range(sound: _Sound, path: Path) -> Iterator[Finding]:
    least, most, initial, sizes = (sound.get(*path, key) for key in ("min", "max", "initial", "sizes"))
    if least is not None and most is not None and least > most:
        yield Finding((*path, "min"), f"min {least} is more than max {most}", f"at most {most}, or a larger max")
        return  # what lies within an empty range need not be told

    def outside(size: int) -> bool:
        return (least is not None and size < least) or (most is not None and size > most)

    within = f"from {'min' if least is None else least} to {'max' if most is None else most}"
    if initial is not None and outside(initial):
        yield Finding((*path, "initial"), f"{initial} is outside min..max", within)
    for index, size in enumerate(sizes or ()):
        if isinstance(size, Unknown):
            continue
        if outside(size):
            yield Finding((*path, "sizes", index), f"{size} is outside min..max", within)
        if size in sizes[:index]:
            yield Finding((*path, "sizes", index), f"{size} is there twice", "name each size once")
    if sizes and not any(isinstance(size, Unknown) for size in sizes):
        yield from _among(sizes, least, None if initial is None or outside(initial) else initial, path)


def _among(sizes: Sequence[int], least: int | None, initial: int | None, path: Path) -> Iterator[Finding]:
    if least is not None and least not in sizes:
        yield Finding((*path, "sizes"), f"lacks min, {least}", "the Job shrinks to min: add it, or change min")
    if initial is not None and initial not in sizes:
        yield Finding((*path, "initial"), f"{initial} is not among the sizes", f"one of {', '.join(map(str, sizes))}")


def _strategy(sound: _Sound) -> Iterator[Finding]:
    framework = sound.get("spec", "framework")
    strategy = sound.get("spec", "elasticity", "strategy")
    path: Path = ("spec", "elasticity", "strategy")
    if framework is not None and sound.absent(*path):
        strategy = default_strategy(framework)
    if strategy == "live":
        if framework not in (None, "pytorch"):
            yield Finding(
                path, f"live needs framework pytorch, not {framework}", "strategy: fixed, and one number of replicas"
            )
        if sound.absent("spec", "checkpoint"):
            yield Finding(
                ("spec", "checkpoint"),
                "is missing: strategy live keeps the Job's checkpoints and ledgers on a volume",
                "checkpoint: {volume: <name of a PersistentVolumeClaim>}, or strategy: fixed",
            )
    replicas: Path = ("spec", "roles", "worker", "replicas")
    least, most = sound.get(*replicas, "min"), sound.get(*replicas, "max")
    if strategy == "fixed" and least is not None and most is not None and least < most:
        yield Finding(
            replicas,
            f"is a range, but strategy fixed never resizes (framework {framework})",
            f"one number, e.g. {least}",
        )


_DURATIONS: tuple[tuple[Path, float, str], ...] = (
    (("spec", "elasticity", "cooldown"), 0.0, "0s"),
    (("spec", "elasticity", "grace"), 1.0, "1s"),
    (("spec", "checkpoint", "every"), 0.001, "1ms"),
    (("spec", "faults", "timeout"), 1.0, "1s"),
    (("spec", "faults", "keepFor"), 0.0, "0s"),
)
"""Where durations are, and the least each may be."""


def _duration(sound: _Sound, path: Path, least: float, bound: str) -> Iterator[Finding]:
    value = sound.get(*path)
    if value is not None and value != FOREVER and not least <= duration(value) <= _TEN_YEARS:
        yield Finding(path, f"{shown(value)} is outside what is possible", f"at least {bound}, at most ten years")
