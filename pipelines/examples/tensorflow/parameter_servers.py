# SPDX-License-Identifier: Apache-2.0
"""Digits with ParameterServerStrategy: servers hold the variables, workers compute steps on them, the chief says when.

Steps are asynchronous, so a run is not repeated to the last digit. Variables are gone with the servers that hold them:
at a change of size all begin anew from the chief's last checkpoint, which is one epoch old at most.
"""

import argparse
from pathlib import Path

import tensorflow as tf
from digits import accuracy, network, samples  # type: ignore[import-not-found]  # it lies beside this file

from kfp_volcano.elastic.runtime.tensorflow import Feed
from kfp_volcano.elastic.sharding import Plan


def main() -> None:
    """Serves or coordinates, as the pod's role says; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=32, help="samples a step, which one worker computes")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoints", type=Path, required=True)
    args = parser.parse_args()

    here = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if here.task_type in {"worker", "ps"}:
        server = tf.distribute.Server(
            here.cluster_spec(), job_name=here.task_type, task_index=here.task_id, protocol="grpc"
        )
        server.join()  # for ever: the Job ends with its chief

    strategy = tf.distribute.ParameterServerStrategy(here)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(here.cluster_spec().as_dict()["worker"])
    x, y, x_test, y_test = samples()
    feed = Feed(Plan(size=len(x), batch=args.batch, epochs=args.epochs, seed=args.seed))
    with strategy.scope():
        model = network(args.seed)
        optimizer = tf.keras.optimizers.SGD(args.lr)
        optimizer.build(model.trainable_variables)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, optimizer=optimizer, feed=feed), str(args.checkpoints), max_to_keep=2
    )
    manager.restore_or_initialize()
    criterion = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica_step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = criterion(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables))

    # Without the shapes each last batch of an epoch would be traced anew.
    shapes = [tf.TensorSpec([None, 64]), tf.TensorSpec([None], tf.int64)]
    step = tf.function(lambda *batch: strategy.run(replica_step, batch), input_signature=shapes)

    def load(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:  # ahead of training, in threads of tf.data
        return tf.gather(x, ids), tf.gather(y, ids)

    print(f"workers {workers}: begins in epoch {feed.epoch + 1}", flush=True)
    for batch, _ in feed.batches(load):
        # Whichever worker is free; a step whose worker is lost is given to another, with the same samples.
        coordinator.schedule(step, args=batch)
        if feed.commit():
            coordinator.join()  # only then is all of it in the variables, and may a checkpoint say so
            manager.save()
            right = accuracy(model, x_test, y_test)
            print(f"epoch {feed.epoch}/{args.epochs}  workers {workers}  accuracy {right:.4f}", flush=True)


if __name__ == "__main__":
    main()
