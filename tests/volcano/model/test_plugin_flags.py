# SPDX-License-Identifier: Apache-2.0
"""Arguments of plugins are read as Go reads flags."""

from __future__ import annotations

import pytest

from kfp_volcano.volcano.model.plugin_flags import flag


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--port=1"], "1"),
        (["-port=1"], "1"),
        (["--port", "1"], "1"),
        (["--port=1", "--port=2"], "2"),
        (["--other=1", "port=3"], "22"),
        (["--port"], ""),
        (None, "22"),
    ],
)
def test_flags_are_read_as_go_does(arguments: list[str] | None, value: str) -> None:
    """With `=` or as the next word, one dash or two; the last one counts."""
    assert flag(arguments, "port", "22") == value
