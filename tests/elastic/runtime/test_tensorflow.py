# SPDX-License-Identifier: Apache-2.0
"""The order of the samples as a pipeline of TensorFlow: each once an epoch, whatever the sizes were."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.sharding import Cursor, Mixture, Plan
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed (extra `tensorflow`)"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def tf() -> Any:
    """TensorFlow, with three devices on the processor."""
    import tensorflow as tf  # noqa: PLC0415 - where it is installed

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    return tf


@pytest.fixture
def feed(tf: Any) -> Callable[..., Any]:
    """Makes a Feed of a plan."""
    from kfp_volcano.elastic.runtime.tensorflow import Feed  # noqa: PLC0415 - as above

    return lambda **plan: Feed(Plan(**{"size": 53, "batch": 10, "epochs": 3, **plan}))


def step(tf: Any, strategy: Any) -> Any:
    """Gives back, by replica, what came."""
    return lambda ids, count: (
        [each.numpy().tolist() for each in strategy.experimental_local_results(ids)],
        [int(each) for each in strategy.experimental_local_results(count)],
    )


@pytest.mark.parametrize("given", [{}, {"last": "drop"}, {"order": Mixture([0, 1] * 26 + [0], {0: 1, 1: 2})}])
def test_a_restart_at_another_size_goes_on_where_training_was(
    tf: Any, feed: Any, tmp_path: Path, given: dict[str, Any]
) -> None:
    """Not where the pipeline was, which had read ahead: the batches are the plan's, one after the other."""
    plan = Plan(**{"size": 53, "batch": 10, "epochs": 3, **given})
    manager, found = None, []
    for devices, steps in ((1, 4), (2, 3), (3, 5), (2, 100)):
        new = feed(**given)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(devices)])
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(feed=new), str(tmp_path), max_to_keep=2)
        manager.restore_or_initialize()
        before = new.samples
        for number, (ids, count) in enumerate(new.batches(lambda ids: ids, strategy)):
            if number == steps:
                break  # the batch that came is not committed
            shares, counts = step(tf, strategy)(ids, count)
            assert len(shares) == devices
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            found.append([sample for share in shares for sample in share])
            assert counts == [len(found[-1])] * devices
            assert new.commit() == (new.cursor.position == 0)
            assert new.samples > before
        manager.save()
    cursor, expected = Cursor(), []
    while not plan.finished(cursor):
        expected.append(plan.ids(cursor, 10).tolist())
        cursor = plan.after(cursor, len(expected[-1]))
    assert found == expected
    assert new.finished
    assert list(feed(**given).batches(lambda ids: ids)) != []
    assert list(new.batches(lambda ids: ids)) == []


def test_all_of_a_batch_comes_to_who_shares_out_steps(tf: Any, feed: Any) -> None:
    """The coordinator of parameter servers gives each step its samples."""
    plan = Plan(size=53, batch=10, epochs=1)
    pairs = [(ids.numpy().tolist(), int(count)) for ids, count in feed(epochs=1).batches(lambda ids: ids * 2)]
    assert pairs == [((plan.ids(Cursor(0, at), 10) * 2).tolist(), min(10, 53 - at)) for at in range(0, 53, 10)]


def test_more_replicas_than_samples(tf: Any, feed: Any) -> None:
    """Have empty shares, and still take part in the step."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    found = [
        step(tf, strategy)(ids, count) for ids, count in feed(size=5, batch=2, epochs=1).batches(lambda x: x, strategy)
    ]
    assert [[len(share) for share in shares] for shares, _ in found] == [[1, 1, 0], [1, 1, 0], [1, 0, 0]]


def test_a_checkpoint_of_other_data_is_refused(tf: Any, feed: Any, tmp_path: Path) -> None:
    """With what differs; a position among other samples would leave some out."""
    path = tf.train.Checkpoint(feed=feed()).save(str(tmp_path / "one"))
    other = feed(size=54, seed=1)
    tf.train.Checkpoint(feed=other).restore(path)
    with pytest.raises(SpecError) as refused:
        other.batches(lambda ids: ids)
    assert [problem.path for problem in refused.value.problems] == ["size", "seed"]


def test_batches_that_are_filled_up_are_refused(feed: Any) -> None:
    """Copies would be trained on as if they were samples."""
    with pytest.raises(SpecError, match="pad"):
        feed(last="pad")
