# SPDX-License-Identifier: Apache-2.0
"""Specs and accounts as text."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.manifests.convert.conversion import Converted
from kfp_volcano.volcano.manifests.convert.report import Entry
from kfp_volcano.volcano.manifests.convert.writing import Names, report, spec_text

ENTRIES = [
    Entry(path="a.b", outcome="kept", target="spec.a"),
    Entry(path="c", outcome="changed", target="spec.c", why="is other | now", remedy="look"),
    Entry(path="d", outcome="lost", why="is not there"),
]


def converted(spec: Any, entries: list[Entry]) -> Converted:
    """A conversion that gave so much."""
    return Converted(source="jobs.yaml", kind="JAXJob", name="a", spec=spec, entries=entries)


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=40) | st.integers() | st.lists(st.text(max_size=9))))
def test_a_spec_is_read_as_it_was_written(spec: dict[str, Any]) -> None:
    """Whatever its texts hold."""
    assert yaml.safe_load(spec_text(converted(spec, []))) == spec


def test_programs_stay_readable() -> None:
    """On their lines."""
    text = spec_text(converted({"command": ["python", "-c", "import os\nprint(os)\n"]}, []))
    assert text.endswith("- |\n  import os\n  print(os)\n")


def test_an_account_begins_with_what_is_lost() -> None:
    """As a page it has a table for each outcome; in a terminal what was kept is counted."""
    page = report(converted({}, ENTRIES), page=True)
    assert page.index("Has no counterpart") < page.index("Works differently") < page.index("Kept")
    assert "| `c` | `spec.c` | is other \\| now | look |" in page
    text = report(converted({}, ENTRIES))
    assert "has no counterpart: d: is not there" in text
    assert "kept: 1 fields" in text


def test_names_of_files_are_given_once() -> None:
    """Two jobs may have one name, and a third that of the second's file."""
    names = Names()
    assert [names.free(name) for name in ("a", "a", "a-2", "a")] == ["a", "a-2", "a-2-2", "a-3"]
