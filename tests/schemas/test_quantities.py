# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.quantities import duration, duration_text, is_multiple, quantity, quantity_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("2.", 2),
        ("-3", -3),
        ("1k", 1000),
        ("2M", 2_000_000),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("32Gi", 32 * 2**30),
        ("7u", "0.000007"),
        ("1e3", 1000),
        ("12E-1", "1.2"),
        (8, 8),
        (0.25, "0.25"),
    ],
)
def test_a_quantity_has_the_value_kubernetes_gives_it(text, value):
    """Suffixes are decimal, binary or an exponent, as in apimachinery's resource.Quantity."""
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "1GB", "1 Gi", "1KI", "one", "1e", "1e999", "0x10", "1\n", "--1", "1mm"])
def test_what_is_no_quantity_is_refused(text):
    """A text outside the grammar has no value."""
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_a_number_is_written_without_an_exponent_and_keeps_its_value(number):
    """Kubernetes takes the text of every number, and it means that number."""
    text = quantity_text(number)
    assert "e" not in text.lower()
    assert float(quantity(text)) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172800),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("1.5m", 90),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_seconds(text, seconds):
    """Units add up, and a plain number is a number of seconds."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "5 m", "1w", "-1s", "1h-5m", "m", "1e3s", "5m\n"])
def test_what_is_no_duration_is_refused(text):
    """A text without a known unit has no length; a sign has no meaning."""
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)


@given(st.floats(min_value=0, max_value=3.2e8) | st.integers(0, 315_360_000).map(float))
def test_writing_a_duration_and_reading_it_gives_it_back(seconds):
    """`duration` undoes `duration_text` exactly."""
    assert duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "unit", "whole"),
    [
        ("10000000000000000000000Ei", "1Mi", True),
        ("1e99", 1, True),
        ("1.5", 1, False),
        ("1500m", "500m", True),
        ("3Mi", "2Mi", False),
        ("1e-99", 1, False),
    ],
)
def test_multiples_are_exact_at_any_size(text, unit, whole):
    """Whether a quantity is a whole number of a unit is known for all quantities there are."""
    assert is_multiple(text, unit) is whole
