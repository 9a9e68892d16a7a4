# SPDX-License-Identifier: Apache-2.0
"""ElasticFlow's traces of Microsoft's research platform: `job_id,submission_time,…,num_gpu,duration` (seconds).

microsoft/elasticflow-traces, published with "ElasticFlow" (ASPLOS'23); the raw ones lack model, batch and deadline,
which nothing here needs. Any trace with these four columns is read so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.assumed import TraceJob

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.reading.table import Table

__all__ = ["COLUMNS", "jobs"]

COLUMNS = frozenset({"job_id", "submission_time", "duration", "num_gpu"})


def jobs(table: Table) -> list[TraceJob]:
    """The jobs of a trace. Complains of what is wrong to the table."""
    found: list[TraceJob] = []
    seen: dict[str, int] = {}
    for row in table.rows():
        name, at = row.text("job_id"), row.time("submission_time")
        duration, gpus = row.number("duration"), row.whole("num_gpu", least=1)
        if duration == 0:
            row.wrong("duration", "is 0: the job never trained", "more than 0, or no such line")
        if name in seen:
            row.wrong("job_id", f"{name} is the job of line {seen[name]} too", "an id of its own")
        seen.setdefault(name, row.line)
        team = row.text("team", default="")
        if row.sound:
            found.append(TraceJob(name=name, at=at, duration_s=duration, gpus=gpus, team=team))
    return found
