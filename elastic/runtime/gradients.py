# SPDX-License-Identifier: Apache-2.0
"""Summing gradients over workers, with a few numbers of each worker in the same message.

Gradients of one dtype and device travel as one flat buffer; of a sharded parameter, what this process has of it. The
tail of the float32 one carries, for each parameter, how many workers have a gradient, and for each worker a row of
numbers and the squared length of its gradient, written by that worker alone and so exact in the sum. A parameter that
no worker used keeps `grad=None`, as in a loop without workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kfp_volcano.elastic.runtime.shards import local, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Gradients", "Total"]

_LENGTH = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""What lengths are computed in where a dtype's own range does not do."""


@dataclass(frozen=True, slots=True)
class Total:
    """What is known after the sum."""

    rows: list[list[float]]
    """Every worker's row."""
    parts: tuple[float, ...] = ()
    """Squared length of each worker's gradient; none where there is one worker, or where they were not wanted."""
    whole: float | None = None
    """Squared length of the sum; None where it was not wanted."""


class Gradients:
    """The gradients of a set of parameters, and the buffers they are summed in."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._parameters = [p for p in dict.fromkeys(parameters) if p.requires_grad]
        self.device = self._parameters[0].device if self._parameters else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # where NCCL and torchft work
        self._flats: list[torch.Tensor] = []
        self._views: list[torch.Tensor] = []
        self._sums: list[torch.Tensor] = []
        self._tail = torch.empty(0)
        self._rows = -1

    @property
    def present(self) -> bool:
        """Whether any parameter has a gradient."""
        return any(p.grad is not None for p in self._parameters)

    def total(
        self,
        row: Sequence[float],
        rank: int,
        world: int,
        add: Callable[[list[torch.Tensor]], bool],
        *,
        lengths: bool = False,
        whole: bool = False,
    ) -> Total | None:
        """Replaces each gradient by its sum over all workers, and returns what is known then; None if `add` failed.

        `add` sums the tensors over all workers in place. With one worker nothing is copied or sent. `lengths` tells
        whether lengths are wanted, by all workers or by none; that reads every gradient twice more. `whole` wants the
        length of the sum alone, for which every gradient is read once more; so does `lengths` with one worker.
        """
        if world == 1:
            return Total([list(row)], whole=self.square() if lengths or whole else None)
        width = len(row) + 1
        self._lay_out(world * width)
        for flat in self._flats:
            flat.zero_()
        pairs = zip(self._parameters, self._views, strict=True)
        present = [(local(p.grad), view) for p, view in pairs if p.grad is not None]
        if present:
            torch._foreach_copy_([view for _, view in present], [grad for grad, _ in present])
        count = len(self._parameters)
        numbers = [0.0 if p.grad is None else 1.0 for p in self._parameters] + [0.0] * (world * width)
        own = count + rank * width
        numbers[own : own + len(row)] = row
        square = self._square() if lengths else None
        self._tail.copy_(torch.tensor(numbers, dtype=torch.float32))
        if square is not None:
            self._tail[own + len(row)] = square
        if not add(self._flats):
            self._rows = -1  # an operation that was given up may still write into the old buffers
            return None
        numbers = self._tail.tolist()
        for parameter, total, users in zip(self._parameters, self._sums, numbers, strict=False):
            parameter.grad = total if users else None
        rows = [numbers[start : start + width] for start in range(count, count + world * width, width)]
        plain = [each[:-1] for each in rows]
        if not (lengths or whole):
            return Total(plain)
        self._tail.zero_()
        if not lengths:
            return Total(plain, whole=float(self._square()))
        return Total(plain, tuple(each[-1] for each in rows), float(self._square()))

    def square(self) -> float:
        """Squared length of this worker's gradients as they are."""
        grads = [local(p.grad) for p in self._parameters if p.grad is not None]
        lengths = [torch.linalg.vector_norm(grad, dtype=_LENGTH.get(grad.dtype)) for grad in grads]
        squares = [(length * length).to(self.device, torch.float32) for length in lengths]
        return float(torch.stack(squares).sum()) if squares else 0.0

    def _square(self) -> torch.Tensor:
        """Squared length of what is in the buffers, whose tail is empty now."""
        lengths = [torch.linalg.vector_norm(flat, dtype=_LENGTH.get(flat.dtype)) for flat in self._flats]
        squares = [(length * length).to(self.device, torch.float32) for length in lengths]
        return torch.stack(squares).sum()

    def _lay_out(self, rows: int) -> None:
        """Allocates the buffers, again only where the number of workers has changed."""
        if rows == self._rows:
            return
        self._rows = rows
        tail = len(self._parameters) + rows
        kinds = dict.fromkeys([(p.dtype, p.device) for p in self._parameters] + [(torch.float32, self.device)])
        views: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._flats = []
        for dtype, device in kinds:
            members = [p for p in self._parameters if (p.dtype, p.device) == (dtype, device)]
            carries_tail = (dtype, device) == (torch.float32, self.device)
            sizes = [local(p).numel() for p in members] + ([tail] if carries_tail else [])
            flat = torch.zeros(sum(sizes), dtype=dtype, device=device)
            pieces = torch.split(flat, sizes)
            views.update({p: piece.view_as(local(p)) for p, piece in zip(members, pieces, strict=False)})
            if carries_tail:
                self._tail = pieces[-1]
            self._flats.append(flat)
        self._views = [views[p] for p in self._parameters]
        self._sums = [wrapped(view, p) for p, view in zip(self._parameters, self._views, strict=True)]
