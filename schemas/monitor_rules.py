# SPDX-License-Identifier: Apache-2.0
"""What the schema cannot say of a spec's `monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_MONITOR: Path = ("spec", "monitor")


def findings(sound: Sound, strategy: str | None) -> Iterator[Finding]:
    """What does not fit the strategy, or itself."""
    if sound.get(*_MONITOR) and strategy not in (None, "live"):
        yield Finding(_MONITOR, f"is for strategy live, not {strategy}", "leave it out, or strategy: live")
    evaluate: Path = (*_MONITOR, "evaluate")
    if sound.get(*evaluate, "epochs") is not None and sound.get(*evaluate, "steps") is not None:
        yield Finding((*evaluate, "steps"), "cannot stand beside epochs", "one of the two intervals")
    if sound.get(*evaluate, "earlyStop") is not None and sound.absent(*evaluate, "metric"):
        yield Finding((*evaluate, "metric"), "is missing: earlyStop goes by it", "for example metric: accuracy")
