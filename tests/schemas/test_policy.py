# SPDX-License-Identifier: Apache-2.0
"""Policies: what is read from documents, what is wrong with them, and which queue gets which."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.documents import parse_all
from kfp_volcano.schemas.policy import DEFAULT, Arm, Policies, QueuePolicy, fits
from kfp_volcano.schemas.policy_validation import policies, policy


def document(name: str = "night", **spec: Any) -> dict[str, Any]:
    """A Policy, and what a test adds."""
    spec = {"queues": ["research"], **spec}
    return {"apiVersion": "kfp-volcano/v1", "kind": "Policy", "metadata": {"name": name}, "spec": spec}


def of(*patterns: tuple[str, ...]) -> Policies:
    """Policies p0, p1, … with these patterns."""
    return policies([(f"p{i}", document(f"p{i}", queues=list(each))) for i, each in enumerate(patterns)])


def test_a_document_is_read_with_its_defaults() -> None:
    """What decides is `threshold` where nothing is said."""
    assert policy(document()) == QueuePolicy(name="night", queues=("research",), policy="threshold")
    assert policy(document(threshold={"up": {"idleShare": 0.2}})).blocks == {"threshold": {"up": {"idleShare": 0.2}}}


def test_what_decides_where_nothing_is_said_is_a_document_too() -> None:
    """So that a log can hold it."""
    assert policy(DEFAULT.document) == DEFAULT


def test_an_arm_has_the_settings_of_the_policy_where_it_says_nothing() -> None:
    """Key by key in each block, and within."""
    arms = [{"name": "a"}, {"name": "b", "share": 3, "policy": "mine", "settings": {"y": 2, "z": {"q": 1}}}]
    read = policy(
        document(arms=arms, threshold={"up": {"idleShare": 0.2}}, settings={"x": 1, "y": 1, "z": {"p": 1}}),
        own=["mine"],
    )
    blocks = {"threshold": {"up": {"idleShare": 0.2}}, "settings": {"x": 1, "y": 1, "z": {"p": 1}}}
    assert read.arms == (
        Arm(name="a", blocks=blocks),
        Arm(name="b", share=3, policy="mine", blocks={**blocks, "settings": {"x": 1, "y": 2, "z": {"p": 1, "q": 1}}}),
    )


def test_every_problem_of_every_document_is_told_at_once() -> None:
    """Each with its document, its place and what would be right."""
    arms = [{"name": "a", "share": 0}, {"name": "a", "policy": "hpaa"}, {"share": 1}]
    with pytest.raises(SpecError) as raised:
        policies(
            [
                (
                    "one",
                    document(
                        queues=["Research"],
                        policy="thresold",
                        threshold={"up": {"idleShare": 2, "idle": 1}},
                        guards={"stale": "9999d", "place": "5m"},
                    ),
                ),
                ("two", document(policy="threshold", arms=arms)),
                ("three", {**document(), "kind": "Policies"}),
            ]
        )
    assert {problem.path for problem in raised.value.problems} == {
        "one: spec.queues[0]",
        "one: spec.policy",
        "one: spec.threshold.up.idleShare",
        "one: spec.threshold.up.idle",
        "one: spec.guards.stale",
        "one: spec.guards.reserve",
        "two: spec.arms[0].share",
        "two: spec.arms[1].name",
        "two: spec.arms[1].policy",
        "two: spec.arms[2].name",
        "two: spec.policy",
        "three: kind",
    }
    assert "kfp_volcano.policies" in str(raised.value)


def test_an_experiment_has_two_arms() -> None:
    """One is compared with nothing."""
    with pytest.raises(SpecError, match="one arm"):
        policy(document(arms=[{"name": "a"}]))


def test_the_most_specific_pattern_wins() -> None:
    """A name before any pattern, more characters before fewer, the default where nothing fits."""
    found = of(("*-team",), ("vision-*",), ("vision-low-*", "x"), ("vision-low-1",))
    assert found.of("vision-1").name == "p1"
    assert found.of("vision-low-2").name == "p2"
    assert found.of("vision-low-1").name == "p3"
    assert found.of("x").name == "p2"
    assert found.of("speech").name == "default"
    assert of(("*",), ("a",)).of("b").name == "p0"


@pytest.mark.parametrize(
    ("one", "two", "tie"),
    [("a", "a", True), ("a*", "*a", True), ("a*", "b*", False), ("a*b", "ab*", True), ("a", "a*", False)],
)
def test_no_two_policies_fit_a_queue_equally_well(one: str, two: str, tie: bool) -> None:
    """Whatever the queues are called: a tie is told before there is such a queue."""
    if tie:
        with pytest.raises(SpecError, match="equally well"):
            of((one,), (two,))
    else:
        assert of((one,), (two,))


PATTERNS = st.text("ab*", min_size=1, max_size=5)


@given(one=PATTERNS, two=PATTERNS, name=st.text("ab", min_size=1, max_size=6))
def test_a_queue_never_has_two_policies_to_choose_from(one: str, two: str, name: str) -> None:
    """Where both fit a name, either they were refused together, or one is more specific."""
    weights = [len(each.replace("*", "")) if "*" in each else 1000 for each in (one, two)]
    try:
        found = of((one,), (two,))
    except SpecError:
        assert weights[0] == weights[1]
        return
    if fits(one, name) and fits(two, name):
        assert weights[0] != weights[1]
        assert found.of(name).name == ("p0" if weights[0] > weights[1] else "p1")


def test_two_policies_have_two_names() -> None:
    """Logs tell them apart by it."""
    with pytest.raises(SpecError, match=r"two: metadata\.name"):
        policies([("one", document()), ("two", document(queues=["other"]))])


def test_a_text_may_hold_several_documents() -> None:
    """Those that are empty are none; a text without any is wrong."""
    assert parse_all("---\na: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert parse_all('{"a": 1}') == [{"a": 1}]
    for text, words in (("", "empty"), ("---\n---\n", "empty"), ("a: 1\n---\n- 1\n", "list"), ("a: 1\na: 2", "twice")):
        with pytest.raises(SpecError, match=words):
            parse_all(text)


def test_adaptive_names_two_other_policies_and_two_shares_in_order() -> None:
    """What would go on for ever, or switch back and forth, is refused; in arms too."""
    block = {"careful": "adaptive", "aggressive": "hpaa", "tightShare": 0.5}
    for spec in ({"adaptive": block}, {"arms": [{"name": "a", "adaptive": block}, {"name": "b"}]}):
        with pytest.raises(SpecError) as raised:
            policy(document(**spec))
        assert {problem.path.rpartition(".")[2] for problem in raised.value.problems} == {*block}
