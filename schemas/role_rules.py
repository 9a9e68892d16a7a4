# SPDX-License-Identifier: Apache-2.0
"""How a TrainingJob's roles have to fit each other and their framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.structure import Finding, Unknown
from kfp_volcano.schemas.wire import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_NEEDED = {"pytorch": ("worker",), "tensorflow": (), "mpi": ("launcher", "worker"), "ray": ("head", "worker")}
_KNOWN = {
    "tensorflow": ("chief", "worker", "ps", "evaluator"),
    "mpi": ("launcher", "worker"),
    "ray": ("head", "worker"),
}
_ALONE = {"tensorflow": ("chief", "evaluator"), "mpi": ("launcher",), "ray": ("head",)}
"""Roles of which there is one pod."""
_WRAPPED = {"mpi": ("launcher",), "ray": ("head",)}
"""Roles whose program is started by one of ours, which has to know it."""
_ROLES: Path = ("spec", "roles")


def findings(sound: Sound, strategy: str | None) -> Iterator[Finding]:
    """What is wrong with the roles of a document of a strategy (None: not known)."""
    roles = sound.keys(*_ROLES)
    if roles:
        yield from _of_framework(sound, roles)
    for role in roles:
        yield from _role(sound, role)
        yield from _command(sound, role, strategy)
    yield from _order(sound, roles)
    yield from _success(sound, roles, strategy)
    if roles:
        yield from _gang(sound, roles)


def _of_framework(sound: Sound, roles: Sequence[str]) -> Iterator[Finding]:
    framework = sound.get("spec", "framework")
    for role in _NEEDED.get(framework, ()):
        if role not in roles:
            needed = " and ".join(_NEEDED[framework])
            yield Finding((*_ROLES, role), "is missing", f"framework {framework} has the roles {needed}")
    known = _KNOWN.get(framework, roles)
    for role in roles:
        if role not in known and role not in names.RESERVED_TASKS:
            yield Finding((*_ROLES, role), f"is no role of framework {framework}", f"there is {', '.join(known)}")
    if framework == "tensorflow" and not {"worker", "chief"} & {*roles}:
        yield Finding((*_ROLES, "worker"), "is missing", "tensorflow trains in worker or chief")
    for role in _ALONE.get(framework, ()):
        replicas = sound.get(*_ROLES, role, "replicas")
        if isinstance(replicas, int | float) and replicas != 1:
            yield Finding((*_ROLES, role, "replicas"), f"there is one {role}, not {replicas}", "1")


def _role(sound: Sound, role: str) -> Iterator[Finding]:
    path = (*_ROLES, role)
    replicas = (*path, "replicas")
    if role in names.RESERVED_TASKS:
        yield Finding(path, "is the name of a task that kfp-volcano makes itself", "call the role otherwise")
    if role == "worker":
        yield from _range(sound, replicas)
    else:
        yield from _fixed_role(sound, role, replicas)
    least, count = sound.get(*path, "min"), sound.get(*replicas)
    if least is not None and isinstance(count, dict):
        yield Finding((*path, "min"), "is for a fixed number of replicas", "the range has a min of its own")
    elif least is not None and count is not None and least > count:
        yield Finding((*path, "min"), f"min {least} is more than replicas {count}", f"at most {count}")


def _fixed_role(sound: Sound, role: str, replicas: Path) -> Iterator[Finding]:
    count = sound.get(*replicas)
    if isinstance(count, dict):
        count = None
        yield Finding(replicas, "is a range, but only worker can be resized", "write a number")
    room = names.longest_role(int(count or 1))
    if sound.get(*replicas[:-1]) is not None and len(role) > room:
        yield Finding(
            replicas[:-1], "makes the names of its pods longer than 63 characters", f"at most {room} characters"
        )


def _range(sound: Sound, path: Path) -> Iterator[Finding]:
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


def _command(sound: Sound, role: str, strategy: str | None) -> Iterator[Finding]:
    framework = sound.get("spec", "framework")
    path = (*_ROLES, role)
    wrapped = role in _WRAPPED.get(framework, ())
    if strategy == "restart" and framework not in (None, "mpi"):
        wrapped = True
    if strategy == "live" and framework == "pytorch" and role == "worker":
        gpus = sound.get(*path, "resources", "gpu", default=0) if sound.absent(*path, "resources", "gpuShare") else 0
        processes = sound.get(*path, "procs") or gpus
        wrapped = isinstance(processes, int) and processes > 1
    tidied = sound.get("spec", "faults", "cleanup") is not None and sound.get(*path, "resources", "gpu", default=0)
    if (wrapped or tidied) and sound.absent(*path, "command") and sound.absent("spec", "command"):
        why = f"the program of {framework}'s {role} is started by kfp-volcano, which has to know it"
        yield Finding((*path, "command"), f"is missing: {why}", "command: [python, train.py], here or in spec")


def _order(sound: Sound, roles: Sequence[str]) -> Iterator[Finding]:
    graph: dict[str, list[str]] = {}
    for role in roles:
        parents = sound.get(*_ROLES, role, "dependsOn", default=[])
        known = []
        for index, parent in enumerate(parents or ()):
            path = (*_ROLES, role, "dependsOn", index)
            if isinstance(parent, Unknown):
                continue
            if parent == role:
                yield Finding(path, "is the role itself", "name another role")
            elif parent not in roles:
                yield Finding(path, f"there is no role {parent}", f"one of {', '.join(in_order(roles))}")
            elif parent in known:
                yield Finding(path, f"{parent} is there twice", "name each role once")
            else:
                known.append(parent)
        graph[role] = known
    cycle = _cycle(graph)
    if cycle:
        way = " -> ".join([*cycle, cycle[0]])
        yield Finding((*_ROLES, cycle[0], "dependsOn"), f"waits for itself: {way}", "let one of them start first")


def _cycle(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """The roles of a cycle in a graph of what depends on what; none where there is no cycle."""
    done: set[str] = set()

    def visit(role: str, way: list[str]) -> list[str]:
        if role in way:
            return way[way.index(role) :]
        if role in done:
            return []
        done.add(role)
        return next((found for parent in graph[role] if (found := visit(parent, [*way, role]))), [])

    return next((found for role in graph if (found := visit(role, []))), [])


def _success(sound: Sound, roles: Sequence[str], strategy: str | None) -> Iterator[Finding]:
    """With a coordinator, whose pod never ends by itself, something has to end the Job."""
    said = {role: sound.get(*_ROLES, role, "success", default=True) for role in roles}
    if roles and strategy in ("live", "restart") and all(value is False for value in said.values()):
        first = in_order(roles)[0]
        yield Finding((*_ROLES, first, "success"), "is false for each role: the Job would never end", "true for one")


def _gang(sound: Sound, roles: Sequence[str]) -> Iterator[Finding]:
    total = sound.get("spec", "minPods")
    least = most = 0
    for role in roles:
        replicas: Any = sound.get(*_ROLES, role, "replicas")
        if isinstance(replicas, dict):
            replicas = sound.get(*_ROLES, role, "replicas", "min")
        minimum = sound.get(*_ROLES, role, "min", default=replicas)
        if total is None or replicas is None or minimum is None:
            return
        if not sound.get(*_ROLES, role, "dependsOn", default=[]):
            least, most = least + int(minimum), most + int(replicas)
    if total is not None and not least <= total <= most:
        bounds = f"from {least}, the sum of the roles' minima, to {most}, that of their pods (without the surplus)"
        yield Finding(("spec", "minPods"), f"{total} is outside what is possible", bounds)
