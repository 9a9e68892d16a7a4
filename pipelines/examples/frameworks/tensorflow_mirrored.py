# SPDX-License-Identifier: Apache-2.0
"""Fit a line with mirrored variables: each replica a share of the samples, the gradients summed over all of them.

The replicas are the devices of all workers, or of this pod where it is alone. With `--checkpoint` it goes on where the
workers before it ended, with whatever number there are now; with `--until` it trains until somebody creates that file,
for as long as one wants to resize it.
"""

import argparse
import json
import os
import signal
from pathlib import Path

import tensorflow as tf

SLOPE, SAMPLES = 3.0, 24


def main() -> None:
    """Train, telling the number of replicas and the loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="fewest steps")
    parser.add_argument("--devices", type=int, default=1, help="as how many devices a pod without GPUs counts")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    strategy = strategy_for(config, options.devices)
    # The strategy takes SIGTERM as a notice and trains on; here a checkpoint is whole whenever the process ends.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    size, first = strategy.num_replicas_in_sync, config.get("task", {}).get("index", 0) == 0
    print(f"replicas {size}: configured {json.dumps(config)}", flush=True)
    with strategy.scope():
        weight = tf.Variable(0.0)
    begun = step = restore(weight, options.checkpoint)

    @tf.function
    def advance(samples: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        def share(x: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
            error = weight * x - SLOPE * x
            told = tf.stack([tf.reduce_sum(error * x) / SAMPLES, tf.reduce_sum(error**2) / SAMPLES, wish])
            told = tf.distribute.get_replica_context().all_reduce("SUM", told)
            weight.assign_sub(0.5 * told[0])
            return told

        return strategy.experimental_local_results(strategy.run(share, (samples, wish)))[0]

    ends = False
    while not ends:
        x = tf.random.stateless_normal([SAMPLES], [step, 0])
        shares = strategy.experimental_distribute_values_from_function(
            lambda replica, x=x: x[replica.replica_id_in_sync_group :: size]
        )
        enough = first and step + 1 >= options.steps and (options.until is None or options.until.exists())
        _, loss, wish = advance(shares, tf.constant(float(enough))).numpy()
        step, ends = step + 1, wish > 0
        if first:
            save(step, float(weight.numpy()), options.checkpoint)
            if step == begun + 1:
                print(f"replicas {size}: step {step} done, loss {loss:.6f}", flush=True)
    if first:
        print(f"replicas {size}: done after step {step}, weight {weight.numpy():.4f}", flush=True)


def strategy_for(config: "dict[str, object]", devices: int) -> tf.distribute.Strategy:
    """The strategy of a cluster's worker, or of a pod that is alone."""
    if config:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(devices)])


def restore(weight: tf.Variable, path: "Path | None") -> int:
    """Take the weight of a checkpoint, if there is one; the number of its steps."""
    if path is None or not path.exists():
        return 0
    saved = json.loads(path.read_text())
    weight.assign(saved["weight"])
    return int(saved["step"])


def save(step: int, weight: float, path: "Path | None") -> None:
    """Write a checkpoint that is whole or not there."""
    if path is not None:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"step": step, "weight": weight}))
        partial.replace(path)


if __name__ == "__main__":
    main()
