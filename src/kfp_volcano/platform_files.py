# SPDX-License-Identifier: Apache-2.0
"""What the platform gives to all its users, in files that an option or the environment names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.reading import read_document
from kfp_volcano.schemas.gpu_pools import bound, gpu_pools
from kfp_volcano.schemas.names import ENV_POOLS, ENV_PROFILES
from kfp_volcano.schemas.profiles import BUILT_IN, read_profiles

if TYPE_CHECKING:
    from kfp_volcano.schemas.profiles import Profiles
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["in_its_pool", "resource_profiles"]


def resource_profiles(path: Path | None = None) -> Profiles:
    """The resource profiles there are: the built-in ones and the platform's, from `path` or the environment's file.

    Raises SpecError where the file cannot be read, or is wrong.
    """
    path = path or _named(ENV_PROFILES)
    return read_profiles(read_document(path), source=str(path)) if path else BUILT_IN


def in_its_pool(job: TrainingJob, path: Path | None = None) -> TrainingJob:
    """The Job, bound to its priority's pool of shared GPUs where the platform has pools.

    Their file is `path`, or what the environment names. Raises SpecError where the file cannot be read, or is wrong.
    """
    path = path or _named(ENV_POOLS)
    return bound(job, gpu_pools(read_document(path), source=str(path))) if path else job


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None
