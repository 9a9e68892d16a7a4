# SPDX-License-Identifier: Apache-2.0
"""Compares two models of `train.py` on the samples that it leaves out, and writes what it found.

The result is `{"metric": "accuracy", "candidate": 0.9, "deployed": 0.8}`; `deployed` is null where nothing was.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from train import network, samples  # type: ignore[import-not-found]  # it lies beside this file


def accuracy(folder: Path, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of samples that a model gets right."""
    model = network()
    model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def main() -> None:
    """Compares; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--candidate", type=Path, required=True, help="folder of a model")
    parser.add_argument("--deployed", default="", help="folder of another; empty for none")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    x, y = samples(args.data, held_out=True)
    found = {
        "metric": "accuracy",
        "candidate": accuracy(args.candidate, x, y),
        "deployed": accuracy(Path(args.deployed), x, y) if args.deployed else None,
    }
    args.out.write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
