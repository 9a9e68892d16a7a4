# SPDX-License-Identifier: Apache-2.0
"""The quick verdict and the long one agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.structure import Unknown, all_deviations, load_schema
from kfp_volcano.schemas.verdict import compiled

SCHEMA = load_schema("training-job.v1")
FITS = compiled(SCHEMA, Unknown)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.just(Unknown()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
RIGHT = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "spec": {
        "framework": "custom",
        "image": "x",
        "command": ["x", "y"],
        "queue": "q",
        "env": {"A": {"secretKeyRef": {"name": "a", "key": "b"}}},
        "volumes": {"v": {"claim": "c", "mount": "/v", "readOnly": True}},
        "placement": {"nodes": {"a": ["b"]}, "tolerations": [{"key": "a"}], "devices": {"joint": ["gpu"]}},
        "roles": {"worker": {"replicas": {"min": 1, "max": 4.0, "sizes": [1, 4]}, "resources": {"cpu": 0.5, "gpu": 1}}},
        "faults": {"timeout": "1h", "keepFor": 1.5, "preflight": ["x"]},
    },
}


def places(value, path=()):
    """The paths of all values in a document."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def replaced(value, path, new):
    """A copy with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@given(st.sampled_from(list(places(RIGHT))), ANYTHING)
def test_a_value_fits_where_nothing_deviates(path, value):
    """Whatever is put anywhere, both answer alike."""
    document = replaced(RIGHT, path, value)
    assert FITS(document) == (not list(all_deviations(document, SCHEMA)))


def test_the_right_document_fits():
    """The law above is about something."""
    assert FITS(RIGHT)


def test_a_keyword_it_does_not_know_is_refused():
    """A schema is never read as if a part of it were not there."""
    with pytest.raises(NotImplementedError, match="oneOf"):
        compiled({"oneOf": []}, Unknown)
