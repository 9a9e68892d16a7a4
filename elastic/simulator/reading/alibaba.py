# SPDX-License-Identifier: Apache-2.0
"""Alibaba's GPU clusters (alibaba/clusterdata): the tasks of v2020, and the pods of v2023.

v2020, `pai_task_table.csv`: `job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,
gpu_type`, published without a header; `plan_gpu` is per instance, 100 for a whole GPU (Weng et al., NSDI'22).
v2023, `openb_pod_list_*.csv`: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,
deletion_time,scheduled_time`, and its nodes, `openb_node_list_*.csv`: `sn,cpu_milli,memory_mib,gpu,model` (Weng et
al., ATC'23). Parts of GPUs are rounded up to whole ones, which are what is shared out here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.assumed import TraceJob
from kfp_volcano.elastic.simulator.reading.sources import open_source
from kfp_volcano.elastic.simulator.reading.table import Table
from kfp_volcano.elastic.simulator.scenario import Node

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.elastic.simulator.reading.table import Row

__all__ = ["NODE_COLUMNS", "POD_COLUMNS", "TASK_COLUMNS", "TASK_STATES", "nodes", "pod_jobs", "read_nodes", "task_jobs"]

TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
TASK_STATES = frozenset({"terminated", "failed", "running", "waiting", "interrupted"})
POD_COLUMNS = frozenset({"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time"})
NODE_COLUMNS = frozenset({"sn", "gpu", "model"})
_NODE_LISTS = ("openb_node_list_gpu_node.csv", "openb_node_list_all_node.csv")
_WHOLE = 100.0
"""What `plan_gpu` is for one GPU."""
_MILLI = 1000.0


@dataclass(slots=True)
class _Tasks:
    """A job of v2020, put together from its tasks."""

    begin: float
    end: float
    gpus: float
    kinds: set[str]


def task_jobs(table: Table) -> tuple[list[TraceJob], list[str]]:
    """The jobs of v2020's tasks, and what was left out. Complains of what is wrong to the table.

    When a job was submitted is in another table: it comes when its first task began.
    """
    jobs: dict[str, _Tasks] = {}
    seen: dict[tuple[str, str], int] = {}
    unended: set[str] = set()
    for row in table.rows():
        name, task = row.text("job_name"), row.text("task_name", default="")
        if (name, task) in seen:
            row.wrong("task_name", f"{task} of {name} is on line {seen[name, task]} too", "one line for each task")
        seen.setdefault((name, task), row.line)
        instances = _some(row, "inst_num", "instances")
        gpus = 0.0 if row.absent("plan_gpu") else row.number("plan_gpu", unit="hundredths of a GPU")
        if row.absent("start_time") or row.absent("end_time"):
            unended.add(name)
            continue
        begin, end = row.time("start_time"), row.time("end_time")
        if end < begin:
            row.wrong("end_time", "is before start_time", "a time after it")
        if not row.sound:
            continue
        job = jobs.setdefault(name, _Tasks(begin, end, 0.0, set()))
        job.begin, job.end = min(job.begin, begin), max(job.end, end)
        job.gpus += instances * gpus / _WHOLE
        if gpus and (kind := row.text("gpu_type", default="")):
            job.kinds.add(kind)
    found = [
        TraceJob(
            name=name, at=job.begin, duration_s=job.end - job.begin, gpus=math.ceil(job.gpus), gpu_classes=_kinds(job)
        )
        for name, job in jobs.items()
        if job.gpus and job.end > job.begin and name not in unended
    ]
    notes = [f"{len(unended)} jobs with tasks that had not ended are left out"] if unended else []
    without = len(jobs.keys() - unended) - len(found)
    return found, notes + ([f"{without} jobs without GPUs, or of no duration, are left out"] if without else [])


def _kinds(job: _Tasks) -> tuple[str, ...]:
    """The kind of GPU of a job; none where its tasks do not agree, or where any would do (MISC)."""
    return tuple(job.kinds) if len(job.kinds) == 1 and "MISC" not in job.kinds else ()


def _some(row: Row, column: str, unit: str) -> float:
    return 1.0 if row.absent(column) else row.number(column, least=1, unit=unit)


def pod_jobs(table: Table) -> tuple[list[TraceJob], list[str]]:
    """The pods of v2023 with GPUs, each a job, and what was left out. Complains of what is wrong to the table."""
    found: list[TraceJob] = []
    seen: dict[str, int] = {}
    without, unended, parts = 0, 0, 0
    for row in table.rows():
        name, gpus = row.text("name"), row.whole("num_gpu")
        whole = row.absent("gpu_milli") or row.number("gpu_milli", most=_MILLI, unit="thousandths of a GPU") == _MILLI
        if name in seen:
            row.wrong("name", f"{name} is the pod of line {seen[name]} too", "a name of its own")
        seen.setdefault(name, row.line)
        created = row.time("creation_time")
        if row.sound and not gpus:
            without += 1
            continue
        if row.absent("deletion_time") or row.absent("scheduled_time"):
            unended += row.sound
            continue
        begin, end = row.time("scheduled_time"), row.time("deletion_time")
        if begin < created or end < begin:
            row.wrong("deletion_time", "the times are not in order", "creation_time, scheduled_time, deletion_time")
        if not row.sound:
            continue
        parts += not whole
        kinds = tuple(each for each in row.text("gpu_spec", default="").split("|") if each)
        team = row.text("qos", default="")
        if end > begin:
            found.append(
                TraceJob(name=name, at=created, duration_s=end - begin, gpus=gpus, team=team, gpu_classes=kinds)
            )
    notes = [f"{without} pods without GPUs are left out"] if without else []
    notes += [f"{unended} pods that were never scheduled, or had not ended, are left out"] if unended else []
    return found, notes + ([f"{parts} pods that asked for a part of a GPU have a whole one"] if parts else [])


def nodes(folder: Path) -> tuple[Node, ...]:
    """The nodes with GPUs in v2023's own list, where that is in a folder. Raises SpecError where it is wrong."""
    path = next((folder / name for name in _NODE_LISTS if (folder / name).is_file()), None)
    return read_nodes(path) if path else ()


def read_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes with GPUs in a list as v2023 has it. Raises SpecError with every line that is wrong."""
    table = Table(open_source(path))
    found = []
    for row in table.rows():
        name, gpus, kind = row.text("sn"), row.whole("gpu"), row.text("model", default="")
        if row.sound and gpus:
            found.append(Node(name=name, gpus=gpus, gpu_class=kind))
    table.complaints.raise_if_any()
    return tuple(found)
