# SPDX-License-Identifier: Apache-2.0
"""TorchX's Kubernetes scheduler at work, for `render.py`: a line of standard input asks for a round.

A program of its own, in an environment of its own, for TorchX holds libraries at versions of long ago. First it prints
its name; then, for each line, which says how many seconds to work, how many manifests a second it made.
"""

from __future__ import annotations

import sys
import time

import torchx
from torchx import specs
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler

WORKERS = 8
ROLE = specs.Role(
    name="worker",
    image="registry.example/train:1.4",
    entrypoint="python",
    args=["train.py", "--lr", "0.1"],
    env={"NCCL_DEBUG": "INFO"},
    num_replicas=WORKERS,
    resource=specs.Resource(cpu=8, gpu=1, memMB=32768),
)


def main() -> None:
    """Work as asked."""
    scheduler = KubernetesScheduler("bench")
    app = specs.AppDef(name="resnet", roles=[ROLE])
    print(f"torchx {torchx.__version__}", flush=True)
    for line in sys.stdin:
        count, started, length = 0, time.perf_counter(), float(line)
        while (elapsed := time.perf_counter() - started) < length:
            str(scheduler.submit_dryrun(app, {"queue": "research", "namespace": "vision"}).request)
            count += 1
        print(count / elapsed, flush=True)


if __name__ == "__main__":
    main()
