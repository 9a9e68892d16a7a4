# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.documents import parse


def test_yaml_and_json_give_the_same_mapping():
    """A spec may be written in either, and in YAML's flow style."""
    value = {"a": {"b": [1, "x", None, True]}}
    assert (
        parse("a:\n  b: [1, x, null, true]\n")
        == parse(json.dumps(value))
        == parse("{a: {b: [1, x, ~, true]}}")
        == value
    )


def test_a_mapping_is_taken_as_it_is():
    """What is a mapping already needs no reading."""
    value = {"a": 1}
    assert parse(value) is value


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_json_text_means_what_json_says(value):
    """Escapes of JSON, surrogate pairs among them, are read as JSON reads them."""
    assert parse(json.dumps(value)) == value


def test_dates_stay_text():
    """YAML's dates are text, as they are in JSON."""
    assert parse("day: 2026-01-31") == {"day": "2026-01-31"}


def test_times_stay_text():
    """12:30 is no number on the base of 60; whole numbers and those with a point are numbers as ever."""
    text = "[12:30, 1:30:00, 190:20:30.15, 12, 0x1f, 010, 1_000, 1.5, .5, 1.0e+3, .inf]"
    assert parse(f"a: {text}")["a"] == [
        *("12:30", "1:30:00", "190:20:30.15"),
        *(12, 31, 8, 1000, 1.5, 0.5, 1000.0, float("inf")),
    ]


@pytest.mark.parametrize("text", ["a: 1\n---\n", "---\na: 1\n...\n", "\ufeff---\na: 1\n---\n# end\n---\n"])
def test_empty_documents_are_none(text):
    """A separator at the end, as templates leave it, begins nothing."""
    assert parse(text) == {"a": 1}


def test_merges_of_merges_are_no_larger_than_their_keys():
    """Thirty mappings that each take in the one before twice: read at once."""
    text = "m0: &m0 {x: 1, y: 2}\n" + "".join(f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}\n" for i in range(1, 31))
    assert parse(text)["m30"] == {"x": 1, "y": 2}


def test_a_merge_key_may_override_and_recur():
    """YAML's merge key is no key written twice."""
    assert parse("a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: *a\n  <<: *b\n  x: 3\n")["c"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", ["job.yaml", "line 3, column 2"]),
        ("a: 1\n\tb: 2\n", ["line 2, column 1"]),
        ("a: 1\nb: 2\na: 3\n", ["line 3, column 1", "the key 'a' is there twice"]),
        ("s:\n  r: {x: 1, x: 2}\n", ["line 2, column 13", "the key 'x' is there twice"]),
        ('{"a": 1, "a": 2}', ["the key 'a' is there twice"]),
        ('{"a": 1,\n "b" 2}', ["line 2, column"]),
        ("a: 1\n---\nb: 2\n", ["line 3, column 1", "another document begins here", "one document a file"]),
        ("a: 1\n---\n- b\n", ["another document begins here"]),
        ("a: &a [*a]\n", ["line 1", "recursive"]),
        ("a: !!python/object:os.system {}\n", ["line 1", "could not determine a constructor"]),
        ("a: \x00\n", ["position 3", "special characters"]),
        ("a: " + "9" * 5000, ["line 1, column 4", "a number of 5000 digits"]),
        ('{"a": ' + "9" * 5000 + "}", ["a number of 5000 digits"]),
        ("[" * 5000, ["nested too deeply"]),
        ("{a: " * 5000, ["nested too deeply"]),
        ("a: {{ .Values.a }}\n", ["line 1", "it is a template: render it first"]),
        ("a:\n\tb: 1\n", ["indent with spaces"]),
        ("", ["is empty", "kfp-volcano/v1"]),
        ("# nothing\n", ["is empty"]),
        ("- a\n- b\n", ["should be a mapping, but is a list"]),
        ("just words", ["should be a mapping, but is a single value"]),
    ],
)
def test_what_is_wrong_with_a_text_is_told_with_its_place(text, words):
    """Broken text, keys written twice and things that are no mapping are SpecErrors that say where."""
    with pytest.raises(SpecError) as caught:
        parse(text, source="job.yaml")
    assert caught.value.source == "job.yaml"
    for word in ["job.yaml", *words]:
        assert word in str(caught.value)
