# SPDX-License-Identifier: Apache-2.0
"""Agents as the pods run them, and a coordinator's service of generations."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.coordination.generations import GenerationService
from kfp_volcano.elastic.generations import Generations
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "127.64.0.1"


class Pod:
    """An agent's process; what its command prints is read line by line."""

    def __init__(self, index: int, command: list[str], framework: str = "custom") -> None:
        env = {
            **os.environ,
            names.ENV_POD: f"job-core-{index}",
            names.ENV_POD_IP: f"127.64.0.{index + 2}",
            names.ENV_TASK: "core",
            names.ENV_TASK_INDEX: str(index),
            names.ENV_ROLE: "worker",
            names.ENV_FRAMEWORK: framework,
            names.ENV_COORDINATOR: HOST,
            names.ENV_ELASTICITY: '{"grace_s": 20.0}',
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kfp_volcano.elastic.agent", "--", *command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def line(self) -> str:
        """The next line that the command prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(60)


@pytest.fixture
def serve() -> Iterator[Callable[[], GenerationService]]:
    """Start a coordinator's service; a second one may be started when the first was stopped."""
    services: list[GenerationService] = []

    def start() -> GenerationService:
        services.append(GenerationService(HOST, Generations({}, "worker", 2, settle_s=0.3)))
        return services[-1]

    yield start
    for service in services[-1:]:
        service.stop()


@pytest.fixture
def pod() -> Iterator[Callable[..., Pod]]:
    """Start agents; all are ended afterwards."""
    pods: list[Pod] = []

    def start(index: int, command: list[str], **more: str) -> Pod:
        pods.append(Pod(index, command, **more))
        return pods[-1]

    yield start
    for each in pods:
        each.process.terminate()
    for each in pods:
        each.end()
        assert each.process.stdout is not None
        each.process.stdout.close()
