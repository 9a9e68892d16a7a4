# SPDX-License-Identifier: Apache-2.0
"""A spec with holes says the same once they are filled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.template import SEPARATOR, cast, fill, split


class Later:
    """A value that only the run knows."""

    def __init__(self, kind: str, value: object) -> None:
        self.kind = kind
        self.value = value


TEXT = st.text().filter(lambda text: SEPARATOR not in text)
LATER = st.one_of(
    st.builds(Later, st.just("NUMBER_INTEGER"), st.integers(-(2**40), 2**40)),
    st.builds(Later, st.just("NUMBER_DOUBLE"), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(Later, st.just("STRING"), TEXT),
    st.builds(Later, st.just("BOOLEAN"), st.booleans()),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), TEXT, LATER)
KEYS = TEXT.filter(lambda key: not key.startswith("$"))
SPECS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


def meant(spec: object) -> object:
    """The spec with each late value in its place."""
    if isinstance(spec, Later):
        return spec.value
    if isinstance(spec, dict):
        return {key: meant(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [meant(value) for value in spec]
    return spec


@given(SPECS)
def test_filling_what_was_split_gives_the_spec(spec: object) -> None:
    """Whatever the spec and the values, quotes and braces in them included, nothing changes on the way."""
    text, values = split(
        spec, type_of=lambda value: value.kind if isinstance(value, Later) else None, pieces_of=lambda text: [text]
    )
    assert fill(text, SEPARATOR.join(str(value.value) for value in values)) == meant(spec)


def test_a_text_around_values_is_joined_with_integers_as_integers() -> None:
    """KFP's local runner writes the integer 7 into a string as 7.0; the command line must read 7."""
    epochs = Later("NUMBER_INTEGER", 7)
    text, values = split(
        {"command": ["--epochs=X!"]},
        type_of=lambda value: value.kind if isinstance(value, Later) else None,
        pieces_of=lambda text: ["--epochs=", epochs, "!"] if "X" in text else [text],
    )
    assert values == [epochs]
    assert fill(text, "7.0") == {"command": ["--epochs=7!"]}


@pytest.mark.parametrize("kind", ["NUMBER_INTEGER", "NUMBER_DOUBLE", "BOOLEAN", "LIST"])
def test_a_value_that_is_not_of_its_type_is_named_with_its_place(kind: str) -> None:
    """All such values are reported at once, each with its path."""
    late = Later(kind, None)
    text, _ = split(
        {"spec": {"a": late, "b": [late]}},
        type_of=lambda value: value.kind if isinstance(value, Later) else None,
        pieces_of=lambda text: [text],
    )
    with pytest.raises(SpecError) as caught:
        fill(text, SEPARATOR.join(["x", "y"]))
    assert [problem.path for problem in caught.value.problems] == ["spec.a", "spec.b[0]"]


@pytest.mark.parametrize(("text", "value"), [("4.0", 4), ("9007199254740993", 2**53 + 1), ("-7", -7)])
def test_an_integer_is_read_exactly(text: str, value: int) -> None:
    """Also one that no double is; the local runner writes integers as doubles."""
    assert cast(text, "NUMBER_INTEGER") == value


def test_a_value_that_did_not_arrive_is_named() -> None:
    """Fewer values than holes is an error, never a wrong spec."""
    late = Later("STRING", None)
    text, _ = split(
        [late, late],
        type_of=lambda value: value.kind if isinstance(value, Later) else None,
        pieces_of=lambda text: [text],
    )
    with pytest.raises(SpecError, match="no value arrived"):
        fill(text, "only one")
