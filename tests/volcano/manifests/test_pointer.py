# SPDX-License-Identifier: Apache-2.0
"""Pointers lead where they say, whatever a key holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.cluster.json_patch import apply_patch
from kfp_volcano.volcano.manifests.pointer import pointer


@given(st.text(max_size=20))
def test_a_patch_reaches_the_very_key(key):
    """Also one with the characters that pointers use for themselves."""
    patch = [{"op": "add", "path": pointer("metadata", "labels", key), "value": "x"}]
    assert apply_patch({"metadata": {"labels": {}}}, patch) == {"metadata": {"labels": {key: "x"}}}
