# SPDX-License-Identifier: Apache-2.0
"""The processes of a worker that write a checkpoint together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Together"]

T = TypeVar("T")


class Together:
    """Seen from the thread of one of them that writes checkpoints; all make the same calls in the same order.

    Args:
        rank: this process'.
        group: of gloo, for these threads alone; None: the process is alone.
    """

    def __init__(self, rank: int = 0, group: Any = None) -> None:
        self.rank, self.group = rank, group

    def do(self, part: Callable[[], T]) -> list[T]:
        """What each process' part returned, by rank. Raises OSError in all where it did in one."""
        if self.group is None:
            return [part()]
        mine: tuple[T | None, str]
        try:
            mine = part(), ""
        except OSError as error:
            mine = None, str(error) or repr(error)
        found: list[Any] = [None] * distributed.get_world_size(self.group)
        distributed.all_gather_object(found, mine, group=self.group)
        failures = [f"process {rank}: {error}" for rank, (_, error) in enumerate(found) if error]
        if failures:
            raise OSError("; ".join(failures))
        return [made for made, _ in found]
