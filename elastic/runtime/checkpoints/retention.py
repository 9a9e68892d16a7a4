# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints stay: the newest ones, and the best by a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.runtime.checkpoints.manifest import Manifest

__all__ = ["Best", "superfluous"]


@dataclass(frozen=True, slots=True)
class Best:
    """Which checkpoint is the best one: that with the largest, or the smallest, value of a metric."""

    metric: str
    mode: Literal["max", "min"] = "max"

    def of(self, manifests: Iterable[Manifest]) -> Manifest | None:
        """The best of those whose very state the metric was logged of; of equal ones the earliest. None: there is none.

        A value that is not a number (NaN) is never the best.
        """
        sign = 1.0 if self.mode == "max" else -1.0
        found = [(sign * value, -each.step, each) for each in manifests if (value := self.value(each)) is not None]
        return max(found, key=lambda entry: entry[:2])[2] if found else None

    def value(self, manifest: Manifest) -> float | None:
        """The metric in a checkpoint's state; None where it was logged of another state, or is not a number."""
        if manifest.about.get("logged", {}).get(self.metric) != manifest.step:
            return None
        value = manifest.metrics.get(self.metric)
        return value if value is not None and value == value else None  # noqa: PLR0124 - NaN is not equal to itself

    def better(self, values: Mapping[str, float], than: float | None) -> bool:
        """Whether values just logged beat the best so far; None: there is none."""
        value = values.get(self.metric)
        if value is None or value != value:  # noqa: PLR0124 - as above
            return False
        return than is None or (value > than if self.mode == "max" else value < than)


def superfluous(manifests: Sequence[Manifest], *, keep: int, best: Best | None) -> list[Manifest]:
    """Those that go, of all whole ones, newest first: all but the `keep` newest and the best.

    Those are the best by `best`, and the newest that was the best evaluation of its time (`about["best"]`).
    """
    evaluated = next((each for each in manifests if each.about.get("best")), None)
    kept = best.of(manifests) if best else None
    return [each for each in manifests[keep:] if each is not kept and each is not evaluated]
