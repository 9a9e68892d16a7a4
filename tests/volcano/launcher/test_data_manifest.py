# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.data_manifest import DataFile, DataManifest

manifests = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(DataFile, st.just(1), st.integers(0, 1), st.sampled_from("xyz"))
).map(DataManifest)


def test_new_changed_and_removed_files_are_told_apart(tmp_path: Path):
    """By name and content, in folders too; a file that only became older or younger is the same."""
    (tmp_path / "sub").mkdir()
    for name in ("stays", "changes", "goes", "sub/stays"):
        (tmp_path / name).write_text(name)
    before = DataManifest.of(tmp_path)
    os.utime(tmp_path / "stays", (1, 1))
    (tmp_path / "changes").write_text("another")
    (tmp_path / "goes").unlink()
    (tmp_path / "sub" / "comes").write_text("new")
    difference = DataManifest.of(tmp_path, before).since(before)
    assert (difference.added, difference.changed, difference.removed) == (("sub/comes",), ("changes",), ("goes",))
    assert str(difference) == "1 new, 1 changed, 1 removed"


@given(manifests, manifests)
def test_equal_digests_are_no_difference(one: DataManifest, two: DataManifest):
    """The digest is of names and contents, as the difference is."""
    assert (one.digest == two.digest) == (not one.since(two))


def test_a_change_of_the_same_length_at_another_time_is_seen(tmp_path: Path):
    """What is known of a file stands for it only while its size and time are the same."""
    file = tmp_path / "a"
    file.write_text("one")
    known = DataManifest.of(tmp_path)
    file.write_text("two")
    os.utime(file, ns=(0, known.files["a"].mtime_ns + 1))
    assert DataManifest.of(tmp_path, known).since(known).changed == ("a",)


def test_what_is_being_written_does_not_count(tmp_path: Path):
    """Hidden files and folders are left out."""
    (tmp_path / ".part").write_text("half")
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "file").write_text("half")
    assert DataManifest.of(tmp_path).files == {}


def test_a_folder_that_is_not_there_is_said(tmp_path: Path):
    """Not taken for one without data."""
    with pytest.raises(SpecError, match="there is no folder"):
        DataManifest.of(tmp_path / "data")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {"a": {"size": 1}}}'])
def test_a_manifest_that_is_none_is_not_used(tmp_path: Path, text: str):
    """Then all is taken for new: training once too often does no harm."""
    (tmp_path / "data.json").write_text(text)
    assert DataManifest.read(tmp_path / "data.json") is None
