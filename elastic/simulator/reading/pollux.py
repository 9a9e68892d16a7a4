# SPDX-License-Identifier: Apache-2.0
"""Pollux' and Sia's workloads: `name,time,application,num_replicas,batch_size`, and what was measured of each.

Published with "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning" (OSDI'21; petuum/adaptdl,
branch osdi21-artifact, simulator/workloads); Sia's (SOSP'23) have the same columns. The profiles of the applications
are in the artifact's folder `traces`, beside the folder of the workload or beside the workload itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.assumed import TraceJob
from kfp_volcano.elastic.simulator.scenario import Node
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.elastic.simulator.profiles.profiles import Profiles
    from kfp_volcano.elastic.simulator.reading.assumed import Assumed
    from kfp_volcano.elastic.simulator.reading.table import Table

__all__ = ["COLUMNS", "NODES", "as_published", "find_profiles", "jobs"]

COLUMNS = frozenset({"name", "time", "application", "num_replicas", "batch_size"})
NODES = tuple(Node(name=f"node-{index}", gpus=4) for index in range(16))
"""The cluster of both papers' simulations: 16 nodes of 4 GPUs."""
_FOLDER = "traces"
_REALLOCATION_S = 30.0
"""What each change of a job's GPUs costs there, its first ones included."""


def as_published(assumed: Assumed) -> Assumed:
    """What the papers' simulator assumes: its clock begins with the workload's, and every reallocation costs the same.

    Both matter to the second: schedulers look at whole minutes of that clock.
    """
    return replace(assumed, origin_s=0.0, start_s=_REALLOCATION_S, resize_s=_REALLOCATION_S, restart_s=_REALLOCATION_S)


def find_profiles(folder: Path) -> Path:
    """The folder of profiles that belongs to a workload in `folder`. Raises SpecError where there is none."""
    for place in (folder, folder.parent):
        if (found := place / _FOLDER).is_dir():
            return found
    remedy = f"the artifact's simulator/{_FOLDER}, in {folder.parent}, or the folder by --profiles"
    raise SpecError(
        [Problem("profiles", f"there is no folder {_FOLDER} beside the workload", remedy)], source="workload"
    )


def jobs(table: Table, profiles: Profiles) -> list[TraceJob]:
    """The jobs of a workload. Complains of what is wrong to the table."""
    found: list[TraceJob] = []
    seen: dict[str, int] = {}
    for row in table.rows():
        name, at = row.text("name"), row.time("time")
        application = row.text("application")
        gpus, batch = row.whole("num_replicas", least=1), row.whole("batch_size", least=1, unit="samples")
        if name in seen:
            row.wrong("name", f"{name} is the name of line {seen[name]} too", "a name of its own")
        seen.setdefault(name, row.line)
        if not row.sound:
            continue
        try:
            work = profiles.work(application, gpus, batch)
        except SpecError as error:
            for problem in error.problems:
                row.wrong("application", f"{problem.path}: {problem.message}", problem.remedy)
            continue
        duration = work.alone_s(gpus)
        found.append(
            TraceJob(name=name, at=at, duration_s=duration, gpus=gpus, work=work, most_gpus=work.most_gpus, team="")
        )
    return found
