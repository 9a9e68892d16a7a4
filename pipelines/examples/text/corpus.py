# SPDX-License-Identifier: Apache-2.0
"""The text: Python's own standard library, which every interpreter has.

A sample is a few lines of one of its packages, and the label is which. Names of the packages themselves are left out,
for they would give the answer away.
"""

from __future__ import annotations

import re
import sysconfig
import zlib
from pathlib import Path

import numpy as np
import torch

PACKAGES = (
    "asyncio",
    "ctypes",
    "email",
    "http",
    "importlib",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml",
)
LINES, MOST_WORDS, VOCABULARY = 8, 64, 1 << 14
HELD_OUT = 5
"""Every fifth sample is for the test."""


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Words (n, MOST_WORDS) as numbers from 1, 0 where a sample has no more; and labels (n)."""
    library = Path(sysconfig.get_path("stdlib"))
    rows, labels = [], []
    for label, package in enumerate(PACKAGES):
        for path in sorted((library / package).rglob("*.py")):
            if "test" in path.relative_to(library / package).parts:  # Debian leaves the tests out; so do we
                continue
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for start in range(0, len(lines) - LINES + 1, LINES):
                found = re.findall(r"[a-z]{2,}", " ".join(lines[start : start + LINES]).lower())
                words = [word for word in found if word not in PACKAGES][:MOST_WORDS]
                if len(words) >= LINES:
                    # Not hash(): it differs from process to process, and the workers have to agree.
                    numbers = [1 + zlib.crc32(word.encode()) % VOCABULARY for word in words]
                    rows.append(numbers + [0] * (MOST_WORDS - len(words)))
                    labels.append(label)
    return torch.tensor(rows), torch.tensor(labels)


def split() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """The samples to train on, and those to test with: the same ones whatever the seed of the training."""
    x, y = samples()
    order = torch.from_numpy(np.argsort(np.random.PCG64(0).random_raw(len(y)), kind="stable"))
    test, rest = order[: len(y) // HELD_OUT], order[len(y) // HELD_OUT :]
    return (x[rest], y[rest]), (x[test], y[test])
