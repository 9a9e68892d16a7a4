# SPDX-License-Identifier: Apache-2.0
"""Fit a line with a learner that holds the weight and actors that compute gradients for it, over plain sockets.

Actors read the learner's host from the list that Volcano mounts in every pod.
"""

import argparse
import contextlib
import os
import random
import socket
import time
from pathlib import Path

SLOPE, SAMPLES, ROUNDS, PORT = 3.0, 12, 30, 7077


def main() -> None:
    """Learn or act."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["learn", "act"])
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--learners", type=Path)
    options = parser.parse_args()
    if options.role == "learn":
        learn(options.actors)
    else:
        act(options.learners.read_text().split()[0])


def learn(actors: int) -> None:
    """Send the weight to all actors, add up their gradients, for some rounds."""
    weight = 0.0
    with socket.create_server((os.environ["KFP_VOLCANO_POD_IP"], PORT)) as server:
        streams = [server.accept()[0].makefile("rw") for _ in range(actors)]
    for _ in range(ROUNDS):
        for stream in streams:
            stream.write(f"{weight}\n")
            stream.flush()
        weight -= 0.5 * sum(float(stream.readline()) for stream in streams) / (SAMPLES * actors)
    print(f"done with {actors} actors, weight {weight:.4f}", flush=True)


def act(host: str) -> None:
    """Answer each weight with the gradient of samples of one's own, until the learner is done."""
    samples = random.Random(os.environ["KFP_VOLCANO_TASK_INDEX"])  # noqa: S311 - samples, not secrets
    with connected(host) as connection, connection.makefile("rw") as stream:
        for line in stream:
            x = samples.choices([-1.0, 0.5, 2.0], k=SAMPLES)
            stream.write(f"{sum((float(line) - SLOPE) * each * each for each in x)}\n")
            stream.flush()


def connected(host: str) -> socket.socket:
    """A connection to the learner, which may be about to listen."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, PORT))
        time.sleep(0.1)


if __name__ == "__main__":
    main()
