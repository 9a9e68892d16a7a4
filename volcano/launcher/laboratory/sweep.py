# SPDX-License-Identifier: Apache-2.0
"""Settings of policies tried out: every combination of the values given, and the best of them."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.policy import BUILT_IN, GUARDS, OWN_SETTINGS, QueuePolicy
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant, problems_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.figures import Figures

__all__ = ["MOST", "Axis", "Swept", "Variant", "axes", "swept", "variants"]

MOST = 1000
"""Combinations, of all policies together."""
_RANGE = re.compile(r"(-?[0-9.]+)\.\.(-?[0-9.]+)/([0-9]+)")


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting and the values it is to have."""

    key: str
    """Of a Policy's spec: `threshold.up.idleShare`."""
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy with one combination of the values."""

    contestant: Contestant
    """Named after its values."""
    of: str
    """The policy that it is a variant of."""
    values: tuple[Any, ...]
    document: Mapping[str, Any]
    """The Policy, as one could give it to the autoscaler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What the combinations came to."""

    axes: tuple[Axis, ...]
    metric: str
    tried: tuple[tuple[Variant, tuple[Figures, ...]], ...]
    """Each with its figures in each replication: one without them."""

    def value(self, figures: Sequence[Figures]) -> float | None:
        """The metric's mean; None where jobs did not end, or there is no figure."""
        values = [getattr(each, self.metric) for each in figures]
        if None in values or any(each.not_ended for each in figures):
            return None
        return math.fsum(values) / len(values)

    @property
    def best(self) -> Variant | None:
        """The variant with the best mean, the first of equals; None where jobs did not end under any."""
        sign = 1 if METRICS[self.metric].better == "less" else -1
        known = [(sign * value, index) for index, (_, found) in enumerate(self.tried)
                 if (value := self.value(found)) is not None]  # fmt: skip
        return self.tried[min(known)[1]][0] if known else None

    def story(self) -> list[str]:
        """What was found, in a sentence."""
        title = METRICS[self.metric].title
        if self.best is None:
            return [f"Of {len(self.tried)} combinations none let all jobs end."]
        return [f"Of {len(self.tried)} combinations the best in {title} is {self.best.contestant.name}."]

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "metric": self.metric,
            "keys": [axis.key for axis in self.axes],
            "best": self.best and {"name": self.best.contestant.name, "policy": dict(self.best.document)},
            "tried": [
                {
                    "policy": variant.of,
                    "values": list(variant.values),
                    self.metric: self.value(found),
                    "figures": [asdict(each) for each in found],
                }
                for variant, found in self.tried
            ],
        }


def axes(given: Sequence[str]) -> tuple[Axis, ...]:
    """Settings as written: `KEY=V1,V2,…`, or `KEY=LOW..HIGH/N` for N numbers that are equally far apart.

    Raises:
        SpecError: What is wrong with any of them.
    """
    found: list[Axis] = []
    wrong: list[Problem] = []
    for text in given:
        key, equals, values = text.partition("=")
        items = _items(values)
        if not (equals and key and items):
            wrong.append(Problem(f"--sweep {text}", "is not KEY=V1,V2,…", "threshold.up.idleShare=0.1,0.3"))
        elif key in [axis.key for axis in found]:
            wrong.append(Problem(f"--sweep {text}", f"{key} is given twice", "all its values at once"))
        else:
            found.append(Axis(key, items))
    if wrong:
        raise SpecError(wrong, source="--sweep")
    return tuple(found)


def variants(contestants: Sequence[Contestant], given: Sequence[Axis]) -> tuple[Variant, ...]:
    """Every combination of values, for each policy that the settings are of.

    A setting is of the policy whose block it begins with, or of every Policy where that is `guards`.

    Raises:
        SpecError: A setting is of none of the policies; a value is none that it may have; there are too many.
    """
    candidates = {each.name: document for each in contestants if (document := _document(each))}
    concerned = {
        name: document for name, document in candidates.items() if all(_concerns(document, axis.key) for axis in given)
    }
    count = len(concerned) * math.prod(len(axis.values) for axis in given)
    keys = ", ".join(axis.key for axis in given)
    if not concerned:
        remedy = "blocks are guards, and one of each of the autoscaler's policies: kfp-volcano explain Policy.spec"
        raise SpecError([Problem("--sweep", f"no policy given has {keys}", remedy)], source="--sweep")
    if count > MOST:
        raise SpecError([Problem("--sweep", f"{count} combinations", f"at most {MOST}")], source="--sweep")
    found: list[Variant] = []
    wrong: dict[str, Problem] = {}
    for name, document in concerned.items():
        for values in product(*(axis.values for axis in given)):
            made = _variant(name, document, given, values)
            if isinstance(made, SpecError):
                wrong |= {str(each): each for each in problems_of(made, f"--sweep, policy {name}")}
            else:
                found.append(made)
    if wrong:
        raise SpecError(list(wrong.values()), source="--sweep")
    return tuple(found)


def swept(given: Sequence[Axis], metric: str, tried: Sequence[Variant], figures: Sequence[Sequence[Figures]]) -> Swept:
    """What variants came to, whose figures are in the same order."""
    pairs = tuple((variant, tuple(found)) for variant, found in zip(tried, figures, strict=True))
    return Swept(axes=tuple(given), metric=metric, tried=pairs)


def _items(text: str) -> tuple[Any, ...]:
    if ranged := _RANGE.fullmatch(text):
        try:
            low, high, count = float(ranged[1]), float(ranged[2]), int(ranged[3])
        except ValueError:
            return ()
        if count < 2:  # noqa: PLR2004 - both ends
            return ()
        return tuple(round(low + (high - low) * index / (count - 1), 12) for index in range(count))
    return tuple(_value(each.strip()) for each in text.split(",")) if text and all(text.split(",")) else ()


def _value(text: str) -> Any:
    """A value as JSON has it, else as text: `0.3`, `null`, `5m`."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _document(contestant: Contestant) -> dict[str, Any] | None:
    """The Policy document of a contestant; None where it has none of this kind."""
    if isinstance(contestant.policy, QueuePolicy):
        document = dict(contestant.policy.document)
        return document if document.get("kind") == "Policy" else None
    if contestant.policy not in BUILT_IN:
        return None
    return {
        "apiVersion": "kfp-volcano/v1",
        "kind": "Policy",
        "metadata": {"name": contestant.name},
        "spec": {"queues": ["*"], "policy": contestant.policy},
    }


def _concerns(document: Mapping[str, Any], key: str) -> bool:
    block = key.partition(".")[0]
    name = document["spec"].get("policy", BUILT_IN[0])
    return block in (GUARDS, name, *document["spec"]) or (block == OWN_SETTINGS and name not in BUILT_IN)


def _variant(of: str, document: Mapping[str, Any], given: Sequence[Axis], values: Sequence[Any]) -> Variant | SpecError:
    """The policy with these values, or what is wrong with them."""
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    for axis, value in zip(given, values, strict=True):
        *path, last = axis.key.split(".")
        place = changed["spec"]
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                return SpecError([Problem(axis.key, f"{part} is a single value")], source=axis.key)
        place[last] = value
    told = ", ".join(f"{axis.key}={_text(value)}" for axis, value in zip(given, values, strict=True))
    try:
        made = policy(changed, source=told, own=list(own_policies()))
    except SpecError as error:
        return error
    return Variant(Contestant(f"{of} ({told})", made), of, tuple(values), changed)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
