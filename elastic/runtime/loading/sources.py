# SPDX-License-Identifier: Apache-2.0
"""Where a share's samples come from: this process, or others that fetch ahead."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils.data import DataLoader

from kfp_volcano.elastic.runtime import draws
from kfp_volcano.elastic.runtime.loading.fetching import SHOW_STACK, Desk, Fetcher, fetch
from kfp_volcano.elastic.runtime.loading.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.process import BaseProcess

    from kfp_volcano.elastic.runtime.loading.batching import Batching
    from kfp_volcano.elastic.runtime.loading.packing import Packed
    from kfp_volcano.elastic.runtime.share import Share

__all__ = ["Ahead", "Inline", "Source"]

_ASKED_AHEAD = 1
"""Pieces that a process is asked for at a time. With more, one might lie behind an empty piece, at which the process
waits for work, while nothing else is left to ask for: it would wait for ever, and the training for it."""
_END_S = 10.0
"""How long the end waits for a sample that is being fetched; then the process ends with this one."""

PATIENCE_S = 60.0
"""How long a step waits for its samples without a word."""

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Has the samples of shares."""

    def batch(self, share: Share, coming: Sequence[Share]) -> Any:
        """A share's samples, collated; those of the `coming` ones will be wanted next, in this order."""

    def close(self) -> None:
        """Fetches no more."""


class Inline:
    """Fetches in this process, when a share is due."""

    def __init__(self, dataset: Any, seed: int | None, batching: Batching) -> None:
        self._dataset, self._seed, self._batching = dataset, seed, batching

    def batch(self, share: Share, coming: Sequence[Share]) -> Any:
        """See Source."""
        del coming
        with draws.kept():  # they are set for the share that the loop's body trains
            places = zip(share.positions.tolist(), share.ids.tolist(), strict=True)
            samples = [fetch(self._dataset, at, sample, self._seed) for at, sample in places]
        return self._batching.batch(samples)

    def close(self) -> None:
        """Nothing is open."""


class Ahead:
    """Fetches in processes of a DataLoader, which are started at once, and collates the next share meanwhile.

    One thread talks with the processes: a DataLoader sends a piece of work for each result that is taken from it, so
    somebody has to take results while training computes.
    """

    def __init__(self, dataset: Any, seed: int | None, batching: Batching, *, workers: int) -> None:
        self._batching = batching
        self._changed = threading.Condition()
        self._stock = Stock(workers)
        self._desk = Desk(workers)
        self._next: Share | None = None
        self._made: dict[bytes, Any] = {}
        self._making: Share | None = None
        self._error: BaseException | None = None
        self._closing = False
        fetcher = Fetcher(dataset, seed, self._desk)
        arriving = iter(
            DataLoader(
                fetcher,  # type: ignore[arg-type]  # it has what a DataLoader calls
                batch_sampler=self._pieces(),
                num_workers=workers,
                collate_fn=fetcher.packed,
                prefetch_factor=_ASKED_AHEAD,
                worker_init_fn=fetcher.settle,
                # Inherits the dataset, which need not be pickled; before training has threads and connections.
                multiprocessing_context="fork",
                generator=torch.Generator().manual_seed(seed or 0),  # the default one is the training's
                in_order=False,
            )
        )
        self._processes = _processes(arriving)
        self._thread = threading.Thread(target=self._run, args=(arriving,), name="loader", daemon=True)
        self._thread.start()

    def batch(self, share: Share, coming: Sequence[Share]) -> Any:
        """See Source."""
        key = _key(share)
        with self._changed:
            self._stock.expect([share, *coming], share.attempt.samples)
            self._desk.show(work=self._stock.hungry)
            self._next = coming[0] if coming else None
            self._changed.notify_all()
            self._wait_for(share)
            if self._error is not None:
                raise self._error
            made = self._made.pop(key, None)
            samples = self._stock.samples(share) if made is None else ()
        return self._batching.batch(samples) if made is None else made

    def _wait_for(self, share: Share) -> None:
        """Until a share's samples are here, or an error is."""
        waited_s = 0.0
        try:
            while not self._changed.wait_for(lambda: self._error or self._is_ready(share), PATIENCE_S):
                waited_s += PATIENCE_S
                self._tell_of_waiting(waited_s)
        except RuntimeError as error:  # PyTorch's handler of SIGCHLD raises it wherever the main thread is
            raise self._explained(error) from None

    def _is_ready(self, share: Share) -> bool:
        return self._stock.holds(share) and not (self._making is not None and _key(self._making) == _key(share))

    def _tell_of_waiting(self, waited_s: float) -> None:
        """Says at which sample each process is, and has it show where."""
        at = [
            f"process {process.pid} is at dataset[{sample}]"
            for process, sample in zip(self._processes, self._desk.samples(), strict=True)
            if sample is not None
        ]
        places = "; ".join(at) + ", and its stack below" if at else "no process is at one: they are being collated"
        _log.warning("the step has waited %g s for its samples: %s", waited_s, places)
        for pid in [each.pid for each in self._processes if at and each.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, SHOW_STACK)

    def _explained(self, error: BaseException) -> BaseException:
        """What became of the process whose end is behind an error, in words; else the error, the dataset's own."""
        ended = [each for each in self._processes if each.exitcode]
        if not ended:
            return error
        code = ended[0].exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        many = len(self._processes)
        return RuntimeError(
            f"a process that fetches samples (pid {ended[0].pid}, one of {many}) {how}, at its dataset[i] or for want "
            "of memory: a pod's resources.memory holds what each of them has, resources.shm the samples that are "
            "fetched ahead; fewer (loader(workers=…)) or less ahead (prefetch=…) take less"
        )

    def close(self) -> None:
        """See Source."""
        self._end()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            _log.warning("a process that fetches samples is still at one; it ends with this process")
        else:
            self._desk.close()

    def _pieces(self) -> Iterator[list[tuple[int, int]]]:
        """What the processes are asked for; called by the DataLoader."""
        while not self._closing:
            with self._changed:
                piece = self._stock.ask()
                self._desk.show(work=self._stock.hungry)
            yield piece

    def _run(self, arriving: Iterator[tuple[list[int], Packed]]) -> None:
        try:
            self._batching.begin()
            self._serve(arriving)
        except BaseException as error:  # noqa: BLE001 - it belongs to the training's thread
            self._end(self._explained(error))
        with suppress(Exception):
            for _ in arriving:  # to its end, at which the DataLoader ends its processes
                pass

    def _serve(self, arriving: Iterator[tuple[list[int], Packed]]) -> None:
        while not self._closing:
            share, samples = self._wait()
            if share is not None:
                self._make(share, samples)
            elif not self._closing:
                self._take(*next(arriving))

    def _end(self, error: BaseException | None = None) -> None:
        with self._changed:
            self._error, self._closing = self._error or error, True
            self._desk.end()
            self._changed.notify_all()

    def _wait(self) -> tuple[Share | None, Sequence[Any]]:
        """Waits for something to do; what to make of which samples, if that is the next batch."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._stock.waiting or self._complete())
            self._making = self._next if self._complete() else None
            return self._making, self._stock.samples(self._making) if self._making is not None else ()

    def _take(self, places: list[int], packed: Packed) -> None:
        samples = packed.unpack()
        with self._changed:
            self._stock.arrived(zip(places, samples, strict=True))
            self._changed.notify_all()

    def _complete(self) -> bool:
        """Whether the next batch can be made."""
        share = self._next
        return share is not None and self._batching.ahead and _key(share) not in self._made and self._stock.holds(share)

    def _make(self, share: Share, samples: Sequence[Any]) -> None:
        batch = self._batching.batch(samples)
        with self._changed:
            self._made, self._making = {_key(share): batch}, None
            self._changed.notify_all()


def _processes(arriving: Iterator[Any]) -> list[BaseProcess]:
    """Those of a DataLoader's iterator, which has no public name for them."""
    return list(arriving._workers)  # type: ignore[attr-defined]  # noqa: SLF001


def _key(share: Share) -> bytes:
    return share.positions.tobytes()
