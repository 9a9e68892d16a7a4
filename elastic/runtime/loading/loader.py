# SPDX-License-Identifier: Apache-2.0
"""What a training loop goes through: shares, and their samples."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from kfp_volcano.elastic.runtime.loading.batching import Batching
from kfp_volcano.elastic.runtime.loading.sources import Ahead, Inline
from kfp_volcano.elastic.runtime.loading.streams import Streams
from kfp_volcano.elastic.runtime.surroundings import end_script_with_exit_code
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from kfp_volcano.elastic.runtime.loading.sources import Source
    from kfp_volcano.elastic.runtime.share import Share
    from kfp_volcano.elastic.sharding import Plan

__all__ = ["Loader"]


class Loader:
    """Iterates over a training's shares, each with its samples as a batch.

    Args:
        shares: The training.
        dataset: `dataset[id]` is a sample, for each id of the plan. It is asked in other processes, in any order, one
            sample at a time.
        plan: The training's.
        coming: The shares that come within so many steps, the present one first, as things stand.
        seed: Fixes what is drawn at random for each sample, whoever fetches it, and when; None: that is not fixed.
        device: The model's.
        workers: Processes that fetch samples; 0: the training's own does, when they are due.
        collate: Makes a batch of a list of samples; by default PyTorch's `default_collate`. It is called in the loop's
            own thread, for it may draw at random; the default is, ahead of time, in another one.
        pin_memory: Whether batches are put into pinned memory; by default where the model is on a CUDA device.
        prefetch: Steps whose samples are fetched ahead.

    Raises:
        SpecError: the dataset cannot be asked by number, or is of another size than the plan says; a setting is wrong.
    """

    def __init__(
        self,
        shares: Iterable[Share],
        dataset: Any,
        plan: Plan,
        coming: Callable[[int], Iterator[Share]],
        *,
        seed: int | None,
        device: torch.device,
        workers: int = 2,
        collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool | None = None,
        prefetch: int = 2,
    ) -> None:
        problems = [*_dataset_problems(dataset, plan), *_setting_problems(workers, prefetch)]
        if problems:
            end_script_with_exit_code()
            raise SpecError(problems, source="loader")
        pinned = device.type == "cuda" if pin_memory is None else pin_memory and torch.cuda.is_available()
        self._shares, self._coming, self._steps = shares, coming, prefetch + 1
        self._dataset, self._seed, self._workers = dataset, seed, workers
        self._batching = Batching(collate, torch.device("cuda", torch.cuda.current_device()) if pinned else None)

    def __iter__(self) -> Iterator[tuple[Share, Any]]:
        """Yields each share and its samples; `step` answers it, as where the training itself is gone through.

        Raises what iterating over the training does, and what the dataset raises.
        """
        with closing(self._source()) as source, closing(_generator(self._shares)) as shares:
            for share in shares:
                yield share, source.batch(share, self._after(share) if self._workers else ())

    def _source(self) -> Source:
        if self._workers == 0:
            return Inline(self._dataset, self._seed, self._batching)
        return Ahead(self._dataset, self._seed, self._batching, workers=self._workers)

    def _after(self, share: Share) -> list[Share]:
        """What comes after a share, or a part of one."""
        coming = list(self._coming(self._steps))
        now = [each.positions[0] for each in coming].index(share.positions[0])
        return coming[now + 1 :]


def _generator(shares: Iterable[Share]) -> Generator[Share, None, None]:
    yield from shares


def _dataset_problems(dataset: Any, plan: Plan) -> Iterator[Problem]:
    if isinstance(dataset, IterableDataset) or not hasattr(type(dataset), "__getitem__"):
        yield Problem(
            "dataset",
            f"{type(dataset).__name__} can only be read from its beginning on: what each worker has fed of it would be "
            "unknown after a resize",
            "give it as files of known numbers of records, Streams(Files(counts, streams=True), open), and as order= "
            "the same Files",
        )
        return
    samples = plan.order.samples if plan.order is not None else plan.size
    if hasattr(type(dataset), "__len__") and len(dataset) != samples:
        yield Problem(
            "dataset",
            f"has {len(dataset)} samples, the training's plan {samples}",
            "pass size=len(dataset) to Training, or a torch.utils.data.Subset here",
        )
    if isinstance(dataset, Streams) and dataset.files is not plan.order:
        yield Problem(
            "dataset",
            "reads its files in the order in which they stand, the training feeds their records in another",
            "pass order=files to Training, the Files that Streams was given",
        )


def _setting_problems(workers: int, prefetch: int) -> Iterator[Problem]:
    for name, value, least in (("workers", workers, 0), ("prefetch", prefetch, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            yield Problem(name, f"{value!r} is not a whole number of at least {least}")
