# SPDX-License-Identifier: Apache-2.0
"""What training draws at random: dropout, augmentation.

Generators are set anew before each share from the seed, the position in the training and the share's first sample. So
a run that is taken up again, or a step that is done again, draws what it would have drawn, whatever was drawn before;
workers draw different numbers, for their samples are different ones. With another number of workers shares are others,
and so is what is drawn for a sample; not so what is drawn while `Training.loader` fetches it, which follows from the
seed and the sample's place in the training alone.
"""

from __future__ import annotations

import hashlib
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["kept", "reseed", "reseed_sample"]


def reseed(seed: int, samples: int, ids: NDArray[np.int64]) -> None:
    """Sets the generators of `random`, NumPy (`numpy.random.*`) and PyTorch (CPU, CUDA); takes some 20 µs.

    Args:
        seed: Of the training.
        samples: Committed before the step.
        ids: Of the share, or the part of it, that is trained next.
    """
    number = _set(f"{seed}/{samples}/{ids[0] if len(ids) else ''}")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)


def reseed_sample(seed: int, at: int) -> None:
    """Sets the generators of `random`, NumPy and PyTorch (CPU) for a sample that is fetched.

    Args:
        seed: Of the training.
        at: The sample's position in the order of all epochs.
    """
    _set(f"{seed}/sample {at}")


@contextmanager
def kept() -> Iterator[None]:
    """Leaves the generators of the CPU behind as they were, whatever is drawn within."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - as in _set
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002 - as in _set
        torch.set_rng_state(before[2])


def _set(told: str) -> int:
    number = int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "big")
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 - what scripts that use the global generator draw from
    torch.default_generator.manual_seed(number)  # torch.manual_seed looks after every kind of device, for half a ms
    return number
