# SPDX-License-Identifier: Apache-2.0
"""What differs is told where it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.manifests.diff import differences, lines

VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_nothing_differs_where_values_are_equal_and_only_there(before, after):
    """No difference means equal, and the other way round."""
    assert (not list(differences(before, after))) == (before == after)


def test_entries_are_matched_by_their_key():
    """A variable put in front of another is one difference, not two."""
    before = {"kind": "Job", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    after = {
        "kind": "Job",
        "env": [{"name": "C", "value": "3"}, {"name": "A", "value": "0"}, {"name": "B", "value": "2"}],
    }
    assert lines([before], [after]) == [
        '~ Job.env[A].value: "1" -> "0"',
        '+ Job.env[C]: {"name": "C", "value": "3"}',
    ]


def test_objects_are_matched_by_kind_and_name():
    """An object that only one rendering has is one line."""
    claim = {"kind": "ResourceClaimTemplate", "metadata": {"name": "a"}}
    assert lines([{"kind": "Job"}], [claim, {"kind": "Job"}]) == ["+ ResourceClaimTemplate"]
