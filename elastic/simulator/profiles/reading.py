# SPDX-License-Identifier: Apache-2.0
"""Reads the profiles of applications from files as Pollux' artifact has them (`simulator/traces`).

For each application a folder with `placements.csv` (placement, local_bsz, step_time, sync_time; a placement is a digit
for each node), `scalability.csv` (num_nodes, num_replicas, local_bsz, step_time, sync_time) and, for each batch that
was trained with to the end, `validation-<batch>.csv` (progress, iteration, metric, grad_sqr, grad_var; a row an epoch).
"""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.profiles.application import Application, Gradients, Validated
from kfp_volcano.elastic.simulator.profiles.step_times import Placed, Scaled, Step, StepTimes, smallest_rotation
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["read_applications"]

_PLACEMENTS = "placements.csv"
_SCALABILITY = "scalability.csv"
_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Published beside the tables, not in them; of any other application: as many as its shortest table has."""
_MOST_LOCAL = {"yolov3": 8}
_ALONE_BATCH = {"ncf": 32768}


def read_applications(folder: Path) -> dict[str, Application]:
    """By name, the applications that have a folder in this one.

    Raises:
        SpecError: There is none, a file is missing, or has lines that cannot be read; all problems at once.
    """
    found, problems = {}, []
    names = sorted(each.parent.name for each in folder.glob(f"*/{_PLACEMENTS}"))
    if not names:
        raise SpecError(f"holds no profiles: no folder in it has a file {_PLACEMENTS}", source=str(folder))
    for name in names:
        tables = _Tables(folder / name)
        application = tables.application()
        problems += tables.problems
        if application is not None:
            found[name] = application
    if problems:
        raise SpecError(problems, source=str(folder))
    return found


class _Tables:
    """The files of an application, and what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problems: list[Problem] = []

    def application(self) -> Application | None:
        """None where something is wrong."""
        name = self._folder.name
        placed = [
            Placed(smallest_rotation(tuple(int(digit) for digit in str(int(placement)))), int(local), Step(step, sync))
            for placement, local, step, sync in self._rows(
                _PLACEMENTS, ("placement", "local_bsz", "step_time", "sync_time")
            )
        ]
        scaled = [
            Scaled(int(nodes), int(gpus), int(local), Step(step, sync))
            for nodes, gpus, local, step, sync in self._rows(
                _SCALABILITY, ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
            )
        ]
        validated = tuple(sorted(self._validated(), key=lambda each: each.batch))
        if not validated:
            self._wrong("", "no file validation-<batch>.csv says how far a training comes with a batch")
        if self.problems:
            return None
        times = StepTimes(name, placed, scaled)
        rows = min(len(each.progress) for each in validated)
        return Application(
            name=name,
            times=times,
            validated=validated,
            epochs=min(_EPOCHS.get(name, rows), rows),
            most_local=_MOST_LOCAL.get(name, times.most_local),
            alone_batch=_ALONE_BATCH.get(name),
        )

    def _validated(self) -> Iterator[Validated]:
        for path in sorted(self._folder.glob("validation-*.csv")):
            batch = path.stem.removeprefix("validation-")
            if not batch.isdigit():
                self._wrong(path.name, "is to be named after its batch, as in validation-128.csv")
                continue
            rows = list(self._rows(path.name, ("progress", "iteration", "grad_sqr", "grad_var")))
            yield Validated(
                batch=int(batch),
                progress=tuple(row[0] for row in rows),
                steps=tuple(row[1] for row in rows),
                gradients=tuple(Gradients(row[2], row[3]) for row in rows),
            )

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[tuple[float, ...]]:
        """These columns of a file's rows; what cannot be read is noted."""
        path = self._folder / name
        count = 0
        try:
            with path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                missing = [column for column in columns if column not in (reader.fieldnames or ())]
                if missing:
                    self._wrong(name, f"has no column {', '.join(missing)}")
                    return
                for row in reader:
                    values = self._numbers(f"{name}:{reader.line_num}", row, columns)
                    count += 1
                    if values is not None:
                        yield values
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            self._wrong(name, f"cannot be read: {error}")
            return
        if not count:
            self._wrong(name, "has no rows")

    def _numbers(self, where: str, row: dict[str, str | None], columns: Sequence[str]) -> tuple[float, ...] | None:
        values = []
        for column in columns:
            try:
                value = float(row[column] or "")
            except ValueError:
                value = math.nan
            if not math.isfinite(value) or value < 0:
                self._wrong(where, f"{column} is to be a number of at least 0, not {row[column]!r}")
                return None
            values.append(value)
        return tuple(values)

    def _wrong(self, where: str, what: str) -> None:
        self.problems.append(Problem(f"{self._folder.name}/{where}" if where else self._folder.name, what))
