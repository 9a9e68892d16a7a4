# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from kfp_volcano.volcano.manifests.render import render
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, VALUES))
def test_a_manifest_as_text_reads_as_that_manifest(manifest):
    """YAML written for people holds the very values, whatever characters are in them."""
    assert yaml.safe_load(manifest_yaml([manifest])) == manifest


def test_several_manifests_are_several_documents():
    """Documents are separated as kubectl wants them."""
    text = manifest_yaml([{"a": 1}, {"b": 2}])
    assert text == "a: 1\n---\nb: 2\n"


def test_keys_keep_their_order_and_values_are_written_out():
    """apiVersion and kind stay in front, and one list used twice is written twice, without an anchor."""
    shared = [1]
    assert manifest_yaml([{"kind": "Job", "apiVersion": shared, "a": shared}]) == (
        "kind: Job\napiVersion:\n- 1\na:\n- 1\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "1e-3",
        "1e3",
        "4",
        "0x1F",
        "0o17",
        "1_000",
        ".5",
        "+1",
        "-1",
        "y",
        "N",
        "on",
        "null",
        "~",
        "",
        "2026-01-31",
        "12:30",
    ],
)
def test_text_that_any_yaml_reader_could_take_for_something_else_is_quoted(text):
    """kubectl reads a bare 1e-3 as a number and a bare y as true, though PyYAML does not."""
    written = manifest_yaml([{"value": text}]).strip()
    assert written in (f"value: '{text}'", f'value: "{text}"')


def test_a_name_that_a_template_lacks_is_an_error():
    """A template never renders a hole."""
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        render("job.json.j2", {})
