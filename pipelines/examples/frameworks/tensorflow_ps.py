# SPDX-License-Identifier: Apache-2.0
"""Fit a line with parameter servers: workers compute steps on variables that the servers hold; the chief says when.

The chief writes checkpoints; the evaluator, which is no part of the cluster, computes the loss of each that it finds,
and ends with the last one.
"""

import argparse
from pathlib import Path

import tensorflow as tf

SLOPE, EVERY, STEPS = 3.0, 20, 60


def main() -> None:
    """Serve, coordinate or evaluate: as the pod's role says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path, required=True)
    folder = str(parser.parse_args().checkpoints)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    roles = {"worker": serve, "ps": serve, "chief": coordinate, "evaluator": evaluate}
    roles[resolver.task_type](resolver, folder)


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver, _: str) -> None:
    """Do what the chief says, for ever."""
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()


def coordinate(resolver: tf.distribute.cluster_resolver.ClusterResolver, folder: str) -> None:
    """Give the workers their steps, and write a checkpoint now and then."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(0.0)
        done = tf.Variable(0, dtype=tf.int64)
    print(f"the weight is on {weight.device}", flush=True)

    @tf.function
    def advance() -> tf.Tensor:
        x = tf.random.normal([24])
        weight.assign_sub(0.2 * tf.reduce_mean((weight * x - SLOPE * x) * x))
        return done.assign_add(1)

    checkpoint = tf.train.Checkpoint(weight=weight, done=done)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=None)
    for step in range(EVERY, STEPS + 1, EVERY):
        for _ in range(EVERY):
            coordinator.schedule(advance)
        coordinator.join()
        manager.save(step)
    print(f"done after {int(done.numpy())} steps, weight {weight.numpy():.3f}", flush=True)


def evaluate(_: tf.distribute.cluster_resolver.ClusterResolver, folder: str) -> None:
    """Compute the loss of each checkpoint that the chief has written, up to the last."""
    weight, done = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weight=weight, done=done)
    x = tf.linspace(-2.0, 2.0, 41)
    for path in tf.train.checkpoints_iterator(folder):
        checkpoint.read(path).assert_existing_objects_matched().expect_partial()
        loss = tf.reduce_mean((weight * x - SLOPE * x) ** 2)
        print(f"after {int(done.numpy())} steps the loss is {loss.numpy():.6f}", flush=True)
        if int(done.numpy()) == STEPS:
            return


if __name__ == "__main__":
    main()
