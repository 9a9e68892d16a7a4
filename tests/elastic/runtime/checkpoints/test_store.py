# SPDX-License-Identifier: Apache-2.0
"""Checkpoints behind a URL are as those on a volume."""

from __future__ import annotations

import uuid

import fsspec
import pytest
import torch

from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, open_store
from kfp_volcano.elastic.runtime.events import Events
from kfp_volcano.errors import SpecError


def test_checkpoints_behind_a_url_are_kept_found_and_checked() -> None:
    """They are listed, the newest stay, damage leads to the one before; nothing is renamed on the way."""
    url = f"memory://{uuid.uuid4().hex}/run"
    checkpoints = Checkpoints(open_store(url), keep=2, owner="w-0", events=Events(None, owner="w-0"))
    assert list(checkpoints.whole()) == []
    for step in (1, 2, 3):
        checkpoints.write({"weight": torch.full((2,), float(step))}, {"step": step, "lineage": f"{step:032x}"[::-1]})
    assert [(each.step, float(state["weight"][0])) for each, state in checkpoints.whole()] == [(3, 3.0), (2, 2.0)]
    newest = checkpoints.manifests()[0]
    [file] = newest.files
    path = f"{url}/{newest.name}/{file}"
    with fsspec.open(path, "rb") as whole:
        data = whole.read()
    with fsspec.open(path, "wb") as damaged:
        damaged.write(data[:-1])
    assert [each.step for each, _ in checkpoints.whole()] == [2]


@pytest.mark.parametrize("url", ["abfs://place@account/run", "nowhere://place/run"])
def test_a_url_that_cannot_be_reached_is_said(url: str) -> None:
    """A client that is not installed, with the extra that brings it, and a scheme that nobody knows."""
    with pytest.raises(SpecError, match="cannot be reached") as caught:
        open_store(url)
    assert ("kfp-volcano[azure]" in str(caught.value)) == url.startswith("abfs")
