# SPDX-License-Identifier: Apache-2.0
"""Digits with MultiWorkerMirroredStrategy: at a change of size all workers begin anew from the checkpoint.

`python mirrored.py` trains with one worker, without any Job. Which samples a step takes does not depend on the number
of workers, and the position in the data is part of the checkpoint: each sample is used once an epoch, whatever happens.
"""

import argparse
import json
import os
import signal
import tempfile
from pathlib import Path

import tensorflow as tf
from digits import accuracy, network, samples  # type: ignore[import-not-found]  # it lies beside this file

from kfp_volcano.elastic.runtime.tensorflow import Feed
from kfp_volcano.elastic.sharding import Plan


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoints", type=Path, default=Path(tempfile.gettempdir()) / "digits")
    args = parser.parse_args()

    # Before anything else of TensorFlow: it takes TF_CONFIG, which the agent sets anew at each start.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {}).get("index", 0)
    workers = strategy.num_replicas_in_sync
    told: list[int] = []
    # After the strategy, which takes SIGTERM for itself and would train on.
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))

    x, y, x_test, y_test = samples()
    feed = Feed(Plan(size=len(x), batch=args.batch, epochs=args.epochs, seed=args.seed))
    with strategy.scope():
        model = network(args.seed)
        optimizer = tf.keras.optimizers.SGD(args.lr, momentum=0.9)
        optimizer.build(model.trainable_variables)  # its variables, too, are in the checkpoint
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, feed=feed)  # with the position in the data
    # All workers write, as the strategy wants it; what counts is the first one's.
    folder = args.checkpoints if rank == 0 else Path(tempfile.mkdtemp())
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
    checkpoint.restore(tf.train.latest_checkpoint(str(args.checkpoints)))
    criterion = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def load(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:  # ahead of training, in threads of tf.data
        return tf.gather(x, ids), tf.gather(y, ids)

    def replica_step(images: tf.Tensor, labels: tf.Tensor, count: tf.Tensor, leaving: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            # Over the samples of all workers: shares differ by one, and a mean of means would be another one.
            loss = criterion(labels, model(images, training=True)) / tf.cast(count, tf.float32)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))  # which adds up those of all workers
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(leaving))

    @tf.function(reduce_retracing=True)  # or each last batch of an epoch would be traced anew
    def step(images: tf.Tensor, labels: tf.Tensor, count: tf.Tensor, leaving: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, (images, labels, count, leaving))

    print(f"workers {workers}: begins in epoch {feed.epoch + 1}", flush=True)
    for (images, labels), count in feed.batches(load, strategy):
        leaving = step(images, labels, count, tf.constant(float(bool(told))))
        ends_epoch = feed.commit()
        if float(leaving) > 0:  # somebody was told to end: all do so after the same step
            manager.save()
            return
        if ends_epoch:
            manager.save()
            if rank == 0:
                right = accuracy(model, x_test, y_test)
                print(f"epoch {feed.epoch}/{args.epochs}  workers {workers}  accuracy {right:.4f}", flush=True)


if __name__ == "__main__":
    main()
