# SPDX-License-Identifier: Apache-2.0
"""Which actor leads which queues. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Assignment", "assigned"]

Assignment = dict[int, frozenset[str]]
"""The queues of each actor, by its number."""


def assigned(queues: Collection[str], before: Mapping[int, frozenset[str]], most: int) -> Assignment:
    """Share queues out among actors, an actor each while there are no more than `most`.

    A queue stays where it was, so that nobody's leadership changes because another queue came; a new one goes to the
    actor with the fewest. Actors are numbered from 0; one that has been there stays, for it may be given queues again.
    """
    wanted = set(queues)
    kept = {actor: of & wanted for actor, of in before.items()}
    for queue in sorted(wanted.difference(*kept.values())):
        idle = [actor for actor in sorted(kept) if not kept[actor]]
        if not idle and len(kept) < most:
            idle = [len(kept)]
        chosen = idle[0] if idle else min(kept, key=lambda actor: (len(kept[actor]), actor))
        kept[chosen] = kept.get(chosen, frozenset()) | {queue}
    return kept
