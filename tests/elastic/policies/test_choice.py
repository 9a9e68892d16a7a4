# SPDX-License-Identifier: Apache-2.0
"""From Policies as they are written to what decides."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kfp_volcano.elastic.policies.adaptive import Adaptive
from kfp_volcano.elastic.policies.choice import _BUILT_IN, policy_for, priorities_for, requests_for
from kfp_volcano.elastic.policies.goodput.programme import Bounded
from kfp_volcano.elastic.policies.priorities import PrioritySettings
from kfp_volcano.elastic.policies.requests import RequestSettings
from kfp_volcano.elastic.policies.settings import AdaptiveSettings, Down, GuardSettings, ThresholdSettings, Up
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.codec import typed, wire_key
from kfp_volcano.schemas.policy import BUILT_IN, QueuePolicy
from kfp_volcano.schemas.structure import child_rule, load_schema

SCHEMA = load_schema("policy.v1")
SPEC = child_rule(SCHEMA, "spec", SCHEMA)
ARM = SCHEMA["$defs"]["arm"]

SETTINGS = {
    ("threshold",): ThresholdSettings,
    ("threshold", "up"): Up,
    ("threshold", "down"): Down,
    ("adaptive",): AdaptiveSettings,
    ("guards",): GuardSettings,
    ("goodput",): Bounded,
    ("priorities",): PrioritySettings,
    ("requests",): RequestSettings,
}
"""The types of the blocks of settings, by where they stand in a spec."""


def spec(**fields: Any) -> QueuePolicy:
    """A Policy with these fields."""
    return QueuePolicy(name="p", queues=("q",), **fields)


@pytest.mark.parametrize("block", SETTINGS)
def test_a_block_has_the_keys_and_defaults_of_its_type(block: tuple[str, ...]) -> None:
    """Each field is a key and each key a field; what the schema says where nothing is written is what holds."""
    rule: Any = SPEC
    for key in block:
        rule = child_rule(rule, key, SCHEMA)
    rules = rule["properties"]
    fields = {wire_key(field.name, field.metadata): field for field in dataclasses.fields(SETTINGS[block])}
    assert fields.keys() == rules.keys()
    required = {key for key, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING}
    assert required == set(rule.get("required", ()))
    kind = SETTINGS[block]
    defaults = {key: child_rule({"properties": rules}, key, SCHEMA).get("default") for key in rules}
    given = {key: value for key, value in defaults.items() if value is not None}
    least = {key: rules[key]["examples"][0] for key in required}
    assert typed(kind, {**least, **given}) == typed(kind, least)
    for key, field in fields.items():
        if field.default is not None and key not in required:
            assert key in given, key


def test_every_policy_that_may_be_written_is_there() -> None:
    """With a block of its name, for arms too."""
    assert tuple(_BUILT_IN) == BUILT_IN
    for name in BUILT_IN:
        assert policy_for(spec(policy=name)).name == name
        assert name in SPEC["properties"]
        assert name in ARM["properties"]


def test_settings_reach_the_policy() -> None:
    """In their types."""
    blocks = {"threshold": {"up": {"idleShare": 0.25}}, "guards": {"cooldown": "5m", "resizesPerHour": None}}
    guarded = policy_for(spec(blocks=blocks))
    assert guarded.policy == Threshold(settings=ThresholdSettings(up=Up(idle_share=0.25)))
    assert guarded.settings == GuardSettings(cooldown_s=300, resizes_per_hour=None)


def test_adaptive_is_one_of_the_policies_it_names() -> None:
    """With the settings of their own blocks; others are its defaults."""
    blocks = {"adaptive": {"careful": "threshold", "idleFor": "5m"}, "threshold": {"up": {"idleShare": 0.7}}}
    adaptive = policy_for(spec(policy="adaptive", blocks=blocks)).policy
    assert isinstance(adaptive, Adaptive)
    assert adaptive.settings.idle_for_s == 300
    assert adaptive.careful == Threshold(settings=ThresholdSettings(up=Up(idle_share=0.7)))
    assert adaptive.aggressive == Adaptive().aggressive


def test_what_is_beside_the_policy_is_there_where_it_is_asked_for() -> None:
    """Classes and requests are left alone by a Policy that does not name them."""
    assert priorities_for(spec()) is None
    assert requests_for(spec()) is None
    blocks = {"priorities": {"classes": ["low", "high"], "still": None, "waiting": "1h"}, "requests": {"margin": 0.5}}
    expected = PrioritySettings(classes=("low", "high"), still_s=None, waiting_s=3600)
    assert priorities_for(spec(blocks=blocks)) == expected
    assert requests_for(spec(blocks=blocks)) == RequestSettings(margin=0.5)


def test_a_policy_of_another_package_is_given_its_settings() -> None:
    """As they were written."""
    given: list[Any] = []

    class Mine:
        name = "mine"

        def __init__(self, settings: Any) -> None:
            given.append(settings)

        def decide(self, snapshot: Any) -> tuple[()]:
            return ()

    guarded = policy_for(spec(policy="mine", blocks={"settings": {"reserve": 2}}), {"mine": Mine})
    assert isinstance(guarded.policy, Mine)
    assert given == [{"reserve": 2}]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "no policy 'mine'"),
        ({"mine": lambda settings: settings["reserve"]}, "KeyError: 'reserve'"),
        ({"mine": lambda settings: 3}, "gave a int, which lacks `name` or `decide`"),
    ],
)
def test_what_is_wrong_with_a_policy_of_another_package_is_said(own: Any, words: str) -> None:
    """With its name, and as input that is wrong: never a traceback."""
    with pytest.raises(SpecError, match=words):
        policy_for(spec(policy="mine"), own)
