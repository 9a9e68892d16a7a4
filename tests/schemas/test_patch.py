# SPDX-License-Identifier: Apache-2.0
"""Strategic merge as Kubernetes does it."""

from __future__ import annotations

import pytest

from kfp_volcano.schemas.patch import strategic_merge

POD = {
    "containers": [{"name": "worker", "image": "x", "args": ["a"], "env": [{"name": "A", "value": "1"}]}],
    "tolerations": [{"key": "a"}],
    "nodeSelector": {"a": "b"},
    "hostNetwork": True,
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, POD),
        ({"hostNetwork": None}, {key: value for key, value in POD.items() if key != "hostNetwork"}),
        ({"nodeSelector": {"c": "d"}}, {**POD, "nodeSelector": {"a": "b", "c": "d"}}),
        ({"nodeSelector": {"a": None}}, {**POD, "nodeSelector": {}}),
        ({"nodeSelector": {"$patch": "replace", "c": "d"}}, {**POD, "nodeSelector": {"c": "d"}}),
        ({"tolerations": [{"key": "b"}]}, {**POD, "tolerations": [{"key": "b"}]}),
        (
            {"containers": [{"name": "worker", "args": ["b"], "env": [{"name": "B", "value": "2"}]}]},
            {
                **POD,
                "containers": [
                    {
                        "name": "worker",
                        "image": "x",
                        "args": ["b"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    }
                ],
            },
        ),
        (
            {
                "containers": [
                    {"name": "worker", "env": [{"name": "A", "$patch": "delete"}]},
                    {"name": "log", "image": "y"},
                ]
            },
            {
                **POD,
                "containers": [
                    {"name": "worker", "image": "x", "args": ["a"], "env": []},
                    {"name": "log", "image": "y"},
                ],
            },
        ),
        (
            {"containers": [{"$patch": "replace"}, {"name": "z", "image": "y"}]},
            {**POD, "containers": [{"name": "z", "image": "y"}]},
        ),
    ],
)
def test_a_patch_is_merged_strategically(patch, expected):
    """Mappings are merged, null removes, lists with a key are merged by it, others replaced."""
    assert strategic_merge(POD, patch) == expected
