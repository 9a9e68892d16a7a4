# SPDX-License-Identifier: Apache-2.0
"""From what a user wrote to Policies, or to all that is wrong with them.

The JSON Schema (`schemas/json/policy.v1.schema.json`) comes first, then what it cannot express, then the types.
Whatever is wrong, in any of the documents, is found in one go.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.hpa_validation import hpa_block_findings, hpa_manifest_findings, is_manifest
from kfp_volcano.schemas.policy import (
    BUILT_IN,
    GUARDS,
    POLICY_BLOCKS,
    QUEUE_BLOCKS,
    Arm,
    Blocks,
    Policies,
    QueuePolicy,
    weight,
)
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.sound import Sound
from kfp_volcano.schemas.structure import Finding, load_schema
from kfp_volcano.schemas.wording import by_place, examine, problems, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["policies", "policy"]

ADAPTIVE = "adaptive"
HPA = "hpa"
"""The policy whose settings have a format of their own."""
_TEN_YEARS = 3650 * 86400.0


def policy(value: Mapping[str, Any], *, source: str = "policy", own: Collection[str] = ()) -> QueuePolicy:
    """The Policy in a mapping; `own` are the policies that other packages bring.

    Raises SpecError with every problem found.
    """
    plain, found = _examined(value, own)
    if found:
        raise SpecError(problems(found, source), source=source)
    return _built(plain)


def policies(
    documents: Sequence[tuple[str, Mapping[str, Any]]], *, source: str = "policies", own: Collection[str] = ()
) -> Policies:
    """The Policies in documents, each with the name that messages call it.

    Raises SpecError with every problem found in any of them, and where two fit the same queues equally well.
    """
    wrong: list[Problem] = []
    sound: list[tuple[str, QueuePolicy]] = []
    for name, value in documents:
        plain, found = _examined(value, own)
        wrong += [Problem(f"{name}: {each.path}", each.message, each.remedy) for each in problems(found, "document")]
        if not found:
            sound.append((name, _built(plain)))
    wrong += _same_names(sound)
    wrong += _ties(sound)
    if wrong:
        raise SpecError(wrong, source=source)
    return Policies(tuple(each for _, each in sound))


def _examined(value: Mapping[str, Any], own: Collection[str]) -> tuple[Any, list[Finding]]:
    """A document in JSON's own types, and what is wrong with it; a HorizontalPodAutoscaler is one for its queue."""
    if is_manifest(value):
        return value, hpa_manifest_findings(value, queue=True)
    plain, found = examine(value, load_schema("policy.v1"))
    first = by_place(found)
    return plain, list(by_place([*first.values(), *_findings(Sound(plain, first.keys()), own)]).values())


def _findings(sound: Sound, own: Collection[str]) -> Iterator[Finding]:
    """What the schema cannot say of a document."""
    yield from _known(sound, ("spec", "policy"), own)
    yield from _durations(sound)
    yield from _guards(sound)
    yield from _adaptive(sound, ("spec",), own)
    if (block := sound.get("spec", HPA)) is not None:
        yield from _at(("spec", HPA), hpa_block_findings(block))
    arms = sound.count("spec", "arms")
    if arms == 1:
        yield Finding(("spec", "arms"), "has one arm, which is compared with nothing", "two arms at least, or policy:")
    if arms and not sound.absent("spec", "policy"):
        yield Finding(("spec", "policy"), "says nothing beside arms, each of which has its own", "leave it out")
    names: dict[str, int] = {}
    for index in range(arms):
        path: Path = ("spec", "arms", index)
        yield from _known(sound, (*path, "policy"), own)
        yield from _adaptive(sound, path, own)
        if (own_block := sound.get(*path, HPA)) is not None:
            yield from _at((*path, HPA), hpa_block_findings(_filled(block or {}, own_block)))
        name = sound.get(*path, "name")
        if name in names:
            yield Finding((*path, "name"), f"{name} is the name of arms[{names[name]}] too", "another name")
        elif name is not None:
            names[name] = index


def _at(place: Path, found: Iterable[Finding]) -> Iterator[Finding]:
    """Findings about a part of a document that is at a place."""
    yield from (each._replace(path=(*place, *each.path)) for each in found)


def _known(sound: Sound, path: Path, own: Collection[str]) -> Iterator[Finding]:
    name = sound.get(*path)
    if name is not None and name not in (*BUILT_IN, *own):
        there = ", ".join((*BUILT_IN, *sorted(own)))
        remedy = f"there is {there}; a policy of your own is an entry point in the group kfp_volcano.policies"
        yield Finding(path, f"there is no policy {shown(name)}", remedy)


def _adaptive(sound: Sound, place: Path, own: Collection[str]) -> Iterator[Finding]:
    path: Path = (*place, ADAPTIVE)
    for key in ("aggressive", "careful"):
        yield from _known(sound, (*path, key), own)
        if sound.get(*path, key) == ADAPTIVE:
            yield Finding((*path, key), "is adaptive itself, which would go on for ever", "another policy")
    idle, tight = sound.get(*path, "idleShare", default=0.5), sound.get(*path, "tightShare", default=0.25)
    if idle is not None and tight is not None and tight >= idle:
        remedy = "a tightShare that is less, so that it does not switch back and forth"
        yield Finding((*path, "tightShare"), f"{tight} is not less than idleShare, {idle}", remedy)


def _durations(sound: Sound) -> Iterator[Finding]:
    """Durations that nobody means, in the blocks that have some."""
    blocks = load_schema("policy.v1")["$defs"]
    for block in QUEUE_BLOCKS:
        rules = blocks[block]["properties"]
        for key in (key for key in sound.keys("spec", block) if rules.get(key, {}).get("$ref") == "#/$defs/duration"):
            value = sound.get("spec", block, key)
            if isinstance(value, str) and duration(value) > _TEN_YEARS:
                path = ("spec", block, key)
                yield Finding(path, f"{shown(value)} is outside what is possible", "at most ten years")


def _guards(sound: Sound) -> Iterator[Finding]:
    path: Path = ("spec", GUARDS)
    place, reserve = sound.get(*path, "place", default="30s"), sound.get(*path, "reserve", default="2m")
    if place is not None and reserve is not None and duration(reserve) < duration(place):
        remedy = f"at least {shown(place)}, or a shorter place"
        yield Finding((*path, "reserve"), f"{shown(reserve)} is less than place", remedy)


def _same_names(sound: Sequence[tuple[str, QueuePolicy]]) -> list[Problem]:
    first: dict[str, str] = {}
    wrong = []
    for where, each in sound:
        if each.name in first:
            message = f"{shown(each.name)} is the name of {first[each.name]} too"
            wrong.append(Problem(f"{where}: metadata.name", message, "a name of its own, by which logs tell it apart"))
        first.setdefault(each.name, where)
    return wrong


def _ties(sound: Sequence[tuple[str, QueuePolicy]]) -> list[Problem]:
    """Patterns of two Policies that fit some queue equally well, so that none could win."""
    return [
        Problem(
            f"{place}: spec.queues[{index}]",
            f"{shown(pattern)} fits queues equally well as {shown(other)} of {where}",
            "a pattern that says more of the names, or the queues' names",
        )
        for (where, first), (place, second) in combinations(sound, 2)
        for index, pattern in enumerate(second.queues)
        for other in first.queues
        if weight(pattern) == weight(other) and _meet(pattern, other)
    ]


def _meet(one: str, two: str) -> bool:
    """Whether some name fits both patterns."""

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(one) or j == len(two):
            return not (one[i:] + two[j:]).strip("*")
        if one[i] == "*":
            return meet(i + 1, j) or meet(i, j + 1)
        if two[j] == "*":
            return meet(i, j + 1) or meet(i + 1, j)
        return one[i] == two[j] and meet(i + 1, j + 1)

    return meet(0, 0)


def _built(plain: Mapping[str, Any]) -> QueuePolicy:
    """The Policy in a document that nothing is wrong with."""
    if is_manifest(plain):
        queue = plain["spec"]["scaleTargetRef"]["name"]
        name = (plain.get("metadata") or {}).get("name", queue)
        return QueuePolicy(name=name, queues=(queue,), policy=HPA, blocks={HPA: dict(plain)}, document=plain)
    spec = plain["spec"]
    blocks = _blocks(spec, {})
    whole = {key: spec[key] for key in QUEUE_BLOCKS if key in spec}
    given = {"policy": spec["policy"]} if "policy" in spec else {}
    return QueuePolicy(
        name=plain["metadata"]["name"],
        queues=tuple(spec["queues"]),
        blocks={**blocks, **whole},
        arms=tuple(_arm(each, blocks) for each in spec.get("arms", ())),
        document=plain,
        **given,
    )


def _arm(value: Mapping[str, Any], defaults: Blocks) -> Arm:
    own = {key: value[key] for key in ("share", "policy") if key in value}
    return Arm(name=value["name"], blocks=_blocks(value, defaults), **own)


def _blocks(value: Mapping[str, Any], defaults: Blocks) -> Blocks:
    """The blocks of settings in a mapping, each filled up with its defaults."""
    keys = [key for key in POLICY_BLOCKS if key in value or key in defaults]
    return {key: _filled(defaults.get(key, {}), value.get(key, {})) for key in keys}


def _filled(defaults: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with what it does not say itself, in the mappings within it too."""
    both = {key for key in value if isinstance(value[key], dict) and isinstance(defaults.get(key), dict)}
    return {**defaults, **value, **{key: _filled(defaults[key], value[key]) for key in both}}
