# SPDX-License-Identifier: Apache-2.0
"""How far a Job's logs have been printed, kept on the cluster for the step that comes next.

Printing a line and noting that it was printed are two acts, and a step may be killed between them. So what is going to
be printed is announced before: the note says how far each pod's log has been printed for certain, and how many lines
are being printed just now. The next step knows then of each line whether it was printed, was not, or may have been: it
prints the last kind again, and marks it.

A note bears the name of who prints. A step that begins takes the note over; one that is still there although another
was started in its place, on a node that was cut off for a while, finds that out with its next announcement, and falls
silent before it prints a line twice.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from kfp_volcano.schemas.names import labels_for
from kfp_volcano.volcano.model.objects import reference_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["LogRecord"]

_DATA = "/data"


class LogRecord:
    """The ConfigMap `<job>-logs`.

    Args:
        cluster: Where the Job is.
        job: The Job; the record goes with it.
        ref: The Job.
        by: Who prints: unique among all steps and attempts.
    """

    def __init__(self, cluster: Cluster, job: Manifest, ref: JobRef, *, by: str) -> None:
        self._cluster = cluster
        self._job = job
        self._ref = ref
        self._by = by
        self._stored: dict[str, str] | None = None
        """As this side wrote it last; None before the record was taken over."""
        self.places: dict[str, str] = {}
        """Behind what has been printed for certain, by pod."""
        self.doubtful: Counter[str] = Counter()
        """How many lines behind those places another may have printed already, by pod."""
        self.kept = True
        """False where this process may not write the record: then nothing is known of other steps."""

    def take_over(self) -> None:
        """Begin where the last step ended, once. Raises UnavailableError."""
        while self.kept and self._stored is None:
            found = self._found()
            if found is not None:
                self.places, self.doubtful = _read(found)
            if not self.kept:
                return
            with suppress(ConflictError):  # who printed so far has gone on meanwhile
                self._write(self._note({}), instead_of=found)

    def announce(self, lines: Mapping[str, int]) -> bool:
        """Say that so many lines of each pod are being printed from now on; False where another prints by now.

        Raises UnavailableError where that may not have been written.
        """
        return self._replace(self._note(lines))

    def printed(self, places: Mapping[str, str], lines: Mapping[str, int]) -> None:
        """What was announced is done; that is written with the next announcement."""
        self.places = {**self.places, **places}
        self.doubtful = +(self.doubtful - Counter(lines))

    def settle(self) -> bool:
        """Write how far all is printed, where the record does not say so yet; False where another prints by now."""
        return self._replace(self._note({}))

    def _note(self, lines: Mapping[str, int]) -> dict[str, str]:
        printing = self.doubtful | Counter(lines)
        return {"by": self._by, "places": json.dumps(self.places), "printing": json.dumps(printing)}

    def _replace(self, note: dict[str, str]) -> bool:
        while self.kept and note != self._stored:
            try:
                self._write(note, instead_of=self._stored)
            except ConflictError:  # noqa: PERF203  # once in a while
                found = self._found()
                if found is not None and found.get("by") != self._by:
                    return False
                self._stored = found  # a write of ours of which no answer came
        return True

    def _write(self, note: dict[str, str], *, instead_of: dict[str, str] | None) -> None:
        name, namespace = f"{self._ref.name}-logs", self._ref.namespace
        try:
            if instead_of is None:
                owned = {"labels": labels_for(self._ref.name), "ownerReferences": [reference_to(self._job)]}
                metadata = {"name": name, "namespace": namespace, **owned}
                self._cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": note})
            else:
                test = {"op": "test", "path": _DATA, "value": instead_of}
                replace = {"op": "replace", "path": _DATA, "value": note}
                self._cluster.patch("ConfigMap", name, namespace, [test, replace])
        except (ForbiddenError, InvalidError, NotFoundError):
            # No permission, or the namespace or the Job is going: the lines are worth more than the note.
            self.kept = False
        else:
            self._stored = note

    def _found(self) -> dict[str, str] | None:
        try:
            data: dict[str, str] = self._cluster.get("ConfigMap", f"{self._ref.name}-logs", self._ref.namespace)["data"]
        except NotFoundError:
            return None
        except ForbiddenError:
            self.kept = False
            return None
        return data


def _read(note: Mapping[str, str]) -> tuple[dict[str, str], Counter[str]]:
    """The places and what is doubtful; nothing where another has written over them: then all is printed again."""
    try:
        return dict(json.loads(note["places"])), Counter(json.loads(note["printing"]))
    except (KeyError, ValueError, TypeError):
        return {}, Counter()
