"""What training draws at random: dropout, augmentation.

Generators are set anew before each share from the seed, the position in the training and the share's first sample. So
a run that is taken up again, or a step that is done again, draws what it would have drawn, whatever was drawn before;
workers draw different numbers, for their samples are different ones. With another number of workers shares are others,
and so is what is drawn for a sample: that follows only from code that draws by the sample's id.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["reseed"]


def reseed(seed: int, samples: int, ids: NDArray[np.int64]) -> None:
    """Sets the generators of `random`, NumPy (`numpy.random.*`) and PyTorch (CPU, CUDA); takes some 20 µs.

    Args:
        seed: Of the training.
        samples: Committed before the step.
        ids: Of the share, or the part of it, that is trained next.
    """
    told = f"{seed}/{samples}/{ids[0] if len(ids) else ''}".encode()
    number = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 - what scripts that use the global generator draw from
    torch.default_generator.manual_seed(number)  # torch.manual_seed looks after every kind of device, for half a ms
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)
