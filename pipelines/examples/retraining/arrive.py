# SPDX-License-Identifier: Apache-2.0
"""Lets data arrive: writes part of scikit-learn's handwritten digits into a folder, as `part-<n>.npz`.

`python arrive.py DIR 0 1 2` writes three of the nine parts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

PARTS = 9


def main() -> None:
    """Writes; each file appears when it is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", type=int, nargs="+", choices=range(PARTS))
    args = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    args.folder.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        chosen = order[part::PARTS]
        draft = args.folder / f".part-{part}.npz"
        np.savez(draft, images=images[chosen], labels=labels[chosen])
        draft.rename(args.folder / f"part-{part}.npz")


if __name__ == "__main__":
    main()
