# SPDX-License-Identifier: Apache-2.0
"""The data of both programs, scikit-learn's handwritten digits, and the network that learns them."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def samples() -> list[np.ndarray]:
    """Images (n, 64) and labels to train on, then to test with: always the same split."""
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, labels, test_size=0.2, random_state=0, stratify=labels)
    return [x.astype("float32"), y, x_test.astype("float32"), y_test]


def network(seed: int) -> tf.keras.Model:
    """Two layers, whose first values are the same in each process."""
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    )


def accuracy(model: tf.keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """The share of samples that the model gets right."""
    return float(np.mean(np.argmax(model(x), axis=1) == y))
