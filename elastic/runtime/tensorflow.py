# SPDX-License-Identifier: Apache-2.0
"""The same samples in the same order for TensorFlow: a `tf.data` pipeline for programs that strategy `restart` runs.

::

    import tensorflow as tf
    from kfp_volcano.elastic.runtime.tensorflow import Feed

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = Feed(Plan(size=len(x), batch=64, epochs=15))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, feed=feed)
    checkpoint.restore(tf.train.latest_checkpoint(folder))

    def load(ids):                                      # of TensorFlow's operations; runs ahead of training
        return tf.gather(x, ids), tf.gather(y, ids)

    for (images, labels), count in feed.batches(load, strategy):
        step(images, labels, count)                     # loss: the sum over the share, divided by count
        feed.commit()

What a pipeline has read ahead says nothing of what was trained on, so the checkpoint holds how far `commit` has come,
and each start makes a new pipeline from there, whatever the number of workers is then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.sharding import Cursor, edges
from kfp_volcano.elastic.sharding.shares import apportion
from kfp_volcano.errors import MissingExtraError, Problem, SpecError

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingExtraError("tensorflow", "tensorflow") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from kfp_volcano.elastic.sharding import Plan

__all__ = ["Feed"]


class Feed(tf.train.experimental.PythonState):  # type: ignore[misc]  # TensorFlow has no types
    """The batches of a plan, shared out among the replicas of a strategy; and how far they are committed.

    Goes into a `tf.train.Checkpoint` by any name. All workers make the same calls in the same order.

    Args:
        plan: Which samples belong to which step.

    Raises:
        SpecError: the plan pads its last batches, whose copies would count; from `batches`, where the checkpoint that
            was restored is of another plan.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        if plan.last == "pad":
            raise SpecError([Problem("last", "pad fills batches up with copies, which would count")], source="feed")
        self._plan = plan
        self._cursor = Cursor()
        self._foreign: list[Problem] = []

    @property
    def cursor(self) -> Cursor:
        """How far the data is committed."""
        return self._cursor

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the next batch; the number of epochs where there is none."""
        return self._cursor.epoch

    @property
    def samples(self) -> int:
        """Samples committed so far, over all epochs: what a learning rate is a function of."""
        return self._plan.samples(self._cursor)

    @property
    def finished(self) -> bool:
        """Whether every batch is committed."""
        return self._plan.finished(self._cursor)

    def commit(self) -> bool:
        """The batch that came last counts; returns whether it was its epoch's last."""
        epoch = self._cursor.epoch
        self._cursor = self._plan.after(self._cursor, self._plan.count(self._cursor, self._plan.batch))
        return self._cursor.epoch > epoch

    def batches(self, load: Callable[[Any], Any], strategy: Any = None) -> Iterable[tuple[Any, Any]]:
        """What is left to train, from what is committed now: for each step a share's samples, and the batch's count.

        Args:
            load: Gives the samples of ids, a tensor of int64 of any length, by TensorFlow's operations
                (`tf.numpy_function` for what is none); called for several steps at a time, ahead of training.
            strategy: Shares batches out among its replicas, whose elements are then values by replica, as `run` takes
                them. None: all of each batch comes here. So does ParameterServerStrategy's coordinator take it: a step
                goes to a worker with its samples, and to another one where that is lost.
        """
        if self._foreign:
            raise SpecError(self._foreign, source="checkpoint")
        if strategy is None:
            return self._dataset(load, first=0, mine=1, world=1)  # type: ignore[no-any-return]

        def here(context: Any) -> Any:
            world = context.num_replicas_in_sync
            mine = world // context.num_input_pipelines
            return self._dataset(load, first=context.input_pipeline_id * mine, mine=mine, world=world)

        return strategy.distribute_datasets_from_function(here)  # type: ignore[no-any-return]

    def _dataset(self, load: Callable[[Any], Any], *, first: int, mine: int, world: int) -> Any:
        """The shares of the replicas `first` to `first + mine - 1` of `world`, one after the other for each step."""
        start = self._cursor

        def shares() -> Iterator[tuple[NDArray[np.int64], int]]:
            cursor, plan = start, self._plan
            while not plan.finished(cursor):
                ids = plan.ids(cursor, plan.batch)
                counts = apportion(len(ids), [1.0] * world)
                for replica in range(first, first + mine):
                    begin, end = edges(counts, replica)
                    yield ids[begin:end], len(ids)
                cursor = plan.after(cursor, len(ids))

        signature = tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)
        return (
            tf.data.Dataset.from_generator(shares, output_signature=signature)
            .map(lambda ids, count: (load(ids), count), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )

    def serialize(self) -> str:
        """How far it has come, for a checkpoint."""
        return json.dumps({**self._about(), "epoch": self._cursor.epoch, "position": self._cursor.position})

    def deserialize(self, string_value: str | bytes) -> None:
        """Goes on from a checkpoint; one of another plan is found when the batches are asked for."""
        said = json.loads(string_value)
        self._foreign = [
            Problem(name, f"the checkpoint was written with {said.get(name)!r}, this program has {value!r}")
            for name, value in self._about().items()
            if said.get(name) != value
        ]
        self._cursor = Cursor(int(said["epoch"]), int(said["position"]))

    def _about(self) -> dict[str, Any]:
        """What two plans must have in common for a cursor of one to be one of the other."""
        return {"size": self._plan.size, "seed": self._plan.seed, "last": self._plan.last}
