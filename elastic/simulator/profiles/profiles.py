# SPDX-License-Identifier: Apache-2.0
"""The applications that were profiled, and the work of jobs that train them. Pure, but for `read`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.profiles.application import packed
from kfp_volcano.elastic.simulator.profiles.training import ProfiledTraining
from kfp_volcano.elastic.simulator.work import Placement
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kfp_volcano.elastic.simulator.profiles.application import Application

__all__ = ["ProfiledWork", "Profiles"]


@dataclass(frozen=True)
class ProfiledWork:
    """To train an application to its end."""

    application: Application
    batch: int
    """Global, where it does not choose it."""

    def begin(self, *, adaptive: bool = False) -> ProfiledTraining:
        """The training at its start; see `Work`."""
        return ProfiledTraining(self.application, self.application.alone_batch if adaptive else self.batch)

    def alone_s(self, gpus: int) -> float:
        """Seconds it would take from start to end on so many GPUs, packed as tightly as they go, for itself."""
        return self.begin().left(Placement(packed(gpus)))

    @property
    def most_gpus(self) -> int:
        """GPUs of which each has enough to do, where it chooses its batch."""
        return self.application.most_gpus


@dataclass(frozen=True)
class Profiles:
    """By name."""

    applications: Mapping[str, Application]

    @classmethod
    def read(cls, folder: Path) -> Profiles:
        """Of all applications in a folder, each of which is a folder itself, as Pollux' artifact has them in `traces`.

        Raises:
            SpecError: A file is missing, or has lines that cannot be read: all of them, each with its place.
        """
        from kfp_volcano.elastic.simulator.profiles.reading import read_applications  # noqa: PLC0415 - effects apart

        return cls(read_applications(folder))

    def work(self, application: str, num_replicas: int, batch_size: int) -> ProfiledWork:
        """What a job has to do that trains an application with a batch, on so many GPUs where sizes are fixed.

        Raises:
            SpecError: The application was not profiled, or not with such a batch on so many GPUs.
        """
        found = self.applications.get(application)
        if found is None:
            known = ", ".join(sorted(self.applications))
            raise SpecError(f"was not profiled: there are {known}", source=f"application {application}")
        found.steps(batch_size, 0)
        found.times.at(packed(num_replicas), found.split(batch_size, num_replicas).local)
        return ProfiledWork(found, batch_size)
