"""Fit a line with MultiWorkerMirroredStrategy: each worker a share of the samples, the gradients summed over all.

With `--checkpoint` it goes on where the workers before it ended, with whatever number there are now; with `--until` it
trains until somebody creates that file, for as long as one wants to resize it.
"""

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

SLOPE, SAMPLES = 3.0, 24


def main() -> None:
    """Train, telling the number of workers and the loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="fewest steps")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"index": 0})
    alone = not json.loads(os.environ.get("TF_CONFIG") or "{}")
    strategy = tf.distribute.MirroredStrategy() if alone else tf.distribute.MultiWorkerMirroredStrategy()
    size, rank = strategy.num_replicas_in_sync, task["index"]
    with strategy.scope():
        weight = tf.Variable(0.0)
    step = restore(weight, options.checkpoint)
    if rank == 0:
        print(f"workers {size}: begins at step {step}", flush=True)

    @tf.function
    def advance(x: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        def share(x: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
            error = weight * x - SLOPE * x
            told = tf.stack([tf.reduce_sum(error * x) / SAMPLES, tf.reduce_sum(error**2) / SAMPLES, wish])
            told = tf.distribute.get_replica_context().all_reduce("SUM", told)
            weight.assign_sub(0.5 * told[0])
            return told

        return strategy.experimental_local_results(strategy.run(share, (x, wish)))[0]

    first, ends = step, False
    while not ends:
        x = tf.random.stateless_normal([SAMPLES], [step, 0])[rank::size]
        enough = rank == 0 and step + 1 >= options.steps and (options.until is None or options.until.exists())
        _, loss, wish = advance(x, tf.constant(float(enough))).numpy()
        step, ends = step + 1, wish > 0
        if rank == 0:
            save(step, float(weight.numpy()), options.checkpoint)
            if step == first + 1:
                print(f"workers {size}: step {step} done, loss {loss:.6f}", flush=True)
    if rank == 0:
        print(f"workers {size}: done after step {step}, weight {weight.numpy():.4f}", flush=True)


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
