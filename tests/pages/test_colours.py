# SPDX-License-Identifier: Apache-2.0
"""The colours of the charts can be told apart by those who see red and green alike."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SERIES = ("blue", "orange", "green", "purple", "sky", "vermilion")
LEAST = 8.0
"""CIE76: two to three is what one just sees side by side."""
SEEN = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
"""Linear RGB as it is seen, at severity 1: Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency" (2009)."""
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour: str, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE L*a*b* of a colour as it is seen (sRGB, D65)."""
    given = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    ratio = XYZ @ np.clip(seen @ linear, 0, 1) / (XYZ @ np.ones(3))
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", ["page.css", "experiment.html.j2"])
@pytest.mark.parametrize("seen", SEEN)
def test_series_are_told_apart(root: Path, page: str, seen: str) -> None:
    """Each two of them, in light and in dark."""
    css = (root / "volcano" / "launcher" / "templates" / page).read_text(encoding="utf-8")
    schemes = zip(*(re.findall(rf"--{name}: (#[0-9a-f]{{6}})", css) for name in SERIES), strict=True)
    found = 0
    for scheme in schemes:
        found += 1
        for one, other in combinations(scheme, 2):
            distance = float(np.linalg.norm(lab(one, SEEN[seen]) - lab(other, SEEN[seen])))
            assert distance >= LEAST, (one, other, distance)
    assert found >= 2
