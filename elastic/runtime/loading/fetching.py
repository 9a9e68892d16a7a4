# SPDX-License-Identifier: Apache-2.0
"""Fetching single samples: in the training's process, or in processes of a DataLoader."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import select
import signal
import struct
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.runtime import draws
from kfp_volcano.elastic.runtime.loading.packing import Packed, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHOW_STACK", "Desk", "Fetcher", "fetch"]

SHOW_STACK = signal.SIGUSR1
"""Has a process that fetches write where it is to standard error."""
_FORMAT, _NONE = "=q", -1
_PLACE = struct.calcsize(_FORMAT)
_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when the one that started it ends."""


def fetch(dataset: Any, at: int, sample: int, seed: int | None) -> Any:
    """A sample, drawn as it is at this place of the training whoever fetches it, and whenever.

    Args:
        dataset: has them by number.
        at: the position in the order of all epochs.
        sample: the number.
        seed: of the training; None: generators are left alone.
    """
    if seed is not None:
        draws.reseed_sample(seed, at)
    return dataset[sample]


class Desk:
    """What the training's process shows its fetchers without a word: whether there is work, and when it is over.

    Two counters of the kernel (eventfd), which are inherited; neither has a lock that a killed process would keep. In
    a piece of shared memory each fetcher shows at which sample it is.

    Args:
        fetchers: how many.
    """

    def __init__(self, fetchers: int) -> None:
        self._memory = mmap.mmap(-1, _PLACE * fetchers)
        self._work, self._over = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        self._shown = False

    def show(self, *, work: bool) -> None:
        """Whether there is anything to fetch."""
        if work and not self._shown:
            os.eventfd_write(self._work, 1)
        elif self._shown and not work:
            os.eventfd_read(self._work)
        self._shown = work

    def end(self) -> None:
        """Nothing is to be fetched any more, nor what is under way."""
        os.eventfd_write(self._over, 1)

    def wait(self) -> None:
        """Until there is work, or it is over."""
        _poll(self._work, self._over).poll()

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return bool(_poll(self._over).poll(0))

    def at(self, fetcher: int, sample: int) -> None:
        """A fetcher is at a sample from now on."""
        struct.pack_into(_FORMAT, self._memory, _PLACE * fetcher, sample)

    def done(self, fetcher: int) -> None:
        """A fetcher is at no sample."""
        self.at(fetcher, _NONE)

    def samples(self) -> list[int | None]:
        """At which sample each fetcher is."""
        found = [struct.unpack_from(_FORMAT, self._memory, place)[0] for place in range(0, len(self._memory), _PLACE)]
        return [None if sample == _NONE else sample for sample in found]

    def close(self) -> None:
        """Of no use any more."""
        os.close(self._work)
        os.close(self._over)


class Fetcher:
    """The user's dataset as a DataLoader's processes see it.

    Each is asked for a piece at a time. A DataLoader sends a piece for each result that is taken; where nothing was
    left to ask for, that piece is empty, and the process waits at the desk.
    """

    def __init__(self, dataset: Any, seed: int | None, desk: Desk) -> None:
        self._dataset, self._seed, self._desk = dataset, seed, desk
        self._parent = os.getpid()
        self._number = 0

    def __getitems__(self, piece: Sequence[tuple[int, int]]) -> list[tuple[int, Any]]:
        """Positions and samples."""
        if not piece:
            self._desk.wait()
        found: list[tuple[int, Any]] = []
        for at, sample in piece:
            if self._desk.over:
                break
            self._desk.at(self._number, sample)
            found.append((at, fetch(self._dataset, at, sample, self._seed)))
        self._desk.done(self._number)
        return found

    def settle(self, worker: int) -> None:
        """At the start of each process: it ends with the training's, and not by signals to its process group.

        Such a signal (torchrun's, an agent's, a terminal's) tells the training to end when its step is done.
        """
        self._number = worker
        self._desk.done(worker)
        os.setpgid(0, 0)
        faulthandler.register(SHOW_STACK, all_threads=True)
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._parent:
            os._exit(1)

    @staticmethod
    def packed(found: list[tuple[int, Any]]) -> tuple[list[int], Packed]:
        """How they travel."""
        return [at for at, _ in found], pack([sample for _, sample in found])


def _poll(*files: int) -> select.poll:
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return poll
