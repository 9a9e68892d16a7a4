# SPDX-License-Identifier: Apache-2.0
"""The one door to traces: whatever is named, in whatever format, as a scenario."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.profiles.profiles import Profiles
from kfp_volcano.elastic.simulator.reading import alibaba, elasticflow, helios, philly, pollux
from kfp_volcano.elastic.simulator.reading.assumed import Assumed, scenario_of
from kfp_volcano.elastic.simulator.reading.decisions import logged_scenario
from kfp_volcano.elastic.simulator.reading.kubernetes import dumped_scenario
from kfp_volcano.elastic.simulator.reading.sources import open_source
from kfp_volcano.elastic.simulator.reading.table import Complaints, Table, read_header
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kfp_volcano.elastic.simulator.reading.sources import Source
    from kfp_volcano.elastic.simulator.scenario import Node, Scenario

__all__ = ["FORMATS", "read_trace"]

_TABLES: Mapping[str, frozenset[str]] = {
    "pollux": pollux.COLUMNS,
    "elasticflow": elasticflow.COLUMNS,
    "philly": philly.COLUMNS,
    "helios": helios.COLUMNS,
    "alibaba-v2020": frozenset(alibaba.TASK_COLUMNS),
    "alibaba-v2023": alibaba.POD_COLUMNS,
}
"""Formats that are tables, and the columns that each has to have."""
FORMATS = (*_TABLES, "philly-log", "kubernetes", "decisions")
"""What `read_trace` reads."""


def read_trace(
    path: Path, *, form: str | None = None, assumed: Assumed | None = None, profiles: Path | None = None
) -> Scenario:
    """The scenario of a trace.

    Args:
        path: A file, perhaps packed; `ARCHIVE.tar.gz/MEMBER.csv`; or the folder of a decision log.
        form: One of `FORMATS`; None: as its header or contents say.
        assumed: What the trace does not tell, and what of it is wanted.
        profiles: The folder of the applications' profiles, for Pollux' workloads; None: beside the workload.

    Raises:
        SpecError: It cannot be read, is in no format that is known, or is malformed: every line that is wrong.
    """
    assumed = assumed or Assumed()
    if path.is_dir() and form in (None, "decisions"):
        return logged_scenario(path, assumed)
    source = open_source(path)
    form = form or _recognised(source)
    if form in _TABLES:
        return _tabled(source, form, assumed, profiles)
    if form == "decisions":
        return logged_scenario(path.parent, assumed)
    document = _document(source)
    if form == "kubernetes":
        return dumped_scenario(document, assumed, name=source.stem, source=source.name)
    if not isinstance(document, list):
        raise SpecError("should be a JSON list of jobs", source=source.name)
    complaints = Complaints(source.name, unit="entry")
    jobs, notes = philly.logged_jobs(document, complaints)
    complaints.raise_if_any()
    return scenario_of(source.stem, jobs, assumed, source=source.name, notes=notes)


def _recognised(source: Source) -> str:
    """The format that a file's contents are in. Raises SpecError where it is none that is known."""
    beginning = source.text.lstrip()[:1]
    if beginning == "[":
        return "philly-log"
    if beginning == "{":
        return "decisions" if '"kind":"begin"' in source.text[:200].replace(" ", "") else "kubernetes"
    header = read_header(source)
    if _is_headless(header):
        return "alibaba-v2020"
    there = frozenset(header)
    found = [form for form, columns in _TABLES.items() if columns <= there]
    if found:
        return max(found, key=lambda form: len(_TABLES[form]))
    nearest = max(_TABLES, key=lambda form: len(_TABLES[form] & there))
    missing = ", ".join(sorted(_TABLES[nearest] - there))
    if _TABLES[nearest] & there:
        raise SpecError(
            [Problem("line 1", f"is the header of no format; {nearest} has {missing} besides", "or say which it is")],
            source=source.name,
        )
    known = "; ".join(f"{form} has {', '.join(sorted(columns))}" for form, columns in _TABLES.items())
    raise SpecError([Problem("line 1", "is the header of no format that is known", known)], source=source.name)


def _is_headless(fields: Sequence[str]) -> bool:
    """Whether a line is one of Alibaba's tasks, whose table has no header."""
    index = alibaba.TASK_COLUMNS.index("status")
    return len(fields) == len(alibaba.TASK_COLUMNS) and fields[index] in alibaba.TASK_STATES


def _tabled(source: Source, form: str, assumed: Assumed, profiles: Path | None) -> Scenario:
    header = read_header(source)
    headless = form == "alibaba-v2020" and _is_headless(header)
    missing = sorted(_TABLES[form] - set(header))
    if missing and not headless:
        wrong = [Problem(f"line 1, {each}", "is missing in the header", f"{form} has it") for each in missing]
        raise SpecError(wrong, source=source.name)
    table = Table(source, alibaba.TASK_COLUMNS if headless else ())
    nodes: tuple[Node, ...] = ()
    notes: list[str] = []
    match form:
        case "pollux":
            folder = profiles or pollux.find_profiles(source.folder)
            jobs, nodes = pollux.jobs(table, Profiles.read(folder)), pollux.NODES
            assumed = pollux.as_published(assumed)
        case "elasticflow":
            jobs = elasticflow.jobs(table)
        case "philly":
            jobs = philly.jobs(table)
        case "helios":
            jobs, notes = helios.jobs(table)
        case "alibaba-v2020":
            jobs, notes = alibaba.task_jobs(table)
        case _:
            jobs, notes = alibaba.pod_jobs(table)
            nodes = alibaba.nodes(source.folder)
    table.complaints.raise_if_any()
    found = scenario_of(source.stem, jobs, assumed, source=source.name, notes=notes, nodes=nodes)
    return replace(found, interval_s=60.0) if form == "pollux" else found


def _document(source: Source) -> Any:
    try:
        return json.loads(source.text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"is no JSON: {error}", source=source.name) from error
