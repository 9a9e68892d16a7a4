# SPDX-License-Identifier: Apache-2.0
"""Whether this project's checks and a real API server say the same of a document: both take it, or both refuse it.

Refused at the same object, too: each change that alone makes the server refuse has to be where the checks find fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver.judge import Refusal
from kfp_volcano.errors import SpecError
from strategies.edits import Edit, apply
from strategies.json_schema import Path

__all__ = ["Agreement"]

Objects = list[dict[str, Any]]


@dataclass(slots=True)
class Agreement:
    """The two sides for one kind of document, and what became of the documents so far."""

    objects: Callable[[Any], Objects]
    """What is rendered of a document; raises SpecError where the checks refuse it."""
    forced: Callable[[Any], Objects | None]
    """What would be rendered without the checks; None where nothing can be."""
    refusals: Callable[[Objects], Sequence[Refusal]]
    """Why the server refuses objects."""
    place: Callable[[Path], str]
    """The object in a document that a path belongs to, as a dotted path."""
    tally: Counter[str] = field(default_factory=Counter)

    def disagreement(self, example: Any, changes: Sequence[Edit]) -> str:
        """How the two disagree about a changed example; empty where they agree."""
        document = apply(example, changes)
        try:
            objects = self.objects(document)
        except SpecError:
            return self._refused(example, changes)
        self.tally["accepted"] += 1
        refusals = self.refusals(objects)
        return f"the checks accept it, the server refuses {refusals}" if refusals else ""

    def rare(self, least: float) -> dict[str, int]:
        """The outcomes that fewer than that part of all documents had: these prove nothing."""
        return {kind: count for kind, count in self.tally.items() if count < self.tally.total() * least}

    def _refused(self, example: Any, changes: Sequence[Edit]) -> str:
        objects = self.forced(apply(example, changes))
        refusals = self.refusals(objects) if objects else []
        self.tally["refused by both" if refusals else "refused by the checks alone"] += 1
        if not refusals:
            return ""
        alone = [([change], refused) for change in changes if (refused := self._alone(example, change))]
        for at_fault, refused in alone or [(changes, refusals)]:
            found = self._found(apply(example, at_fault))
            if not self._meets(found, at_fault):
                return f"{at_fault}: the server refuses {refused}, the checks find fault with {found}"
        return ""

    def _alone(self, example: Any, change: Edit) -> Sequence[Refusal]:
        objects = self.forced(apply(example, [change]))
        return self.refusals(objects) if objects else []

    def _found(self, document: Any) -> list[str]:
        try:
            self.objects(document)
        except SpecError as error:
            return [problem.path for problem in error.problems]
        return []

    def _meets(self, found: Sequence[str], changes: Sequence[Edit]) -> bool:
        """Whether one of the places found is in an object that was changed, or around it."""
        places = [self.place(change.path) for change in changes]
        return any(path.startswith(place) or place.startswith(path) for path in found for place in places)
