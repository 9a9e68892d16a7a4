# SPDX-License-Identifier: Apache-2.0
"""Training code's side: a PyTorch loop whose workers come and go, without a restart and without a sample lost.

::

    import torch
    from kfp_volcano.elastic.runtime import Training

    x, y = load()                                       # every worker sees the whole dataset
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()             # a mean over the samples, as usual

    training = Training(model, optimizer, size=len(x), batch=64, lr=0.1, epochs=20)
    for share in training:                              # this worker's part of each global batch
        training.step(criterion(model(x[share.ids]), y[share.ids]))
        if share.ends_epoch and training.first:
            training.log(accuracy=evaluate(model))
    print("done")                                       # only when all batches are committed

Where samples take time to get, `for share, batch in training.loader(dataset)` has them fetched ahead by processes.

`step` does the backward pass, sums the gradients over all workers with weights, and updates; or finds that a worker
was lost, and the loop yields the same batch again, shared out among those who are left. So the loop's body may run more
than once for a batch, and must leave nothing else behind (a learning rate scheduler is given as `lr=`, and is stepped
by the samples that are committed).

The same script runs with plain `python train.py`: one worker, no coordinator; give `job_dir=` to have checkpoints.

A worker told to leave (SIGTERM) takes part until the others no longer wait for it, about a second, and its loop
raises SystemExit (143).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.scaling import Factors, Situation
from kfp_volcano.errors import MissingExtraError
from kfp_volcano.schemas.batch import Batch

if TYPE_CHECKING:
    from kfp_volcano.elastic.runtime.crew import worker_device, worker_mesh
    from kfp_volcano.elastic.runtime.loading import Loader, Streams
    from kfp_volcano.elastic.runtime.share import Share
    from kfp_volcano.elastic.runtime.state import Stateful
    from kfp_volcano.elastic.runtime.training import Training
    from kfp_volcano.elastic.runtime.wishes import LEFT

__all__ = [
    "LEFT",
    "Batch",
    "Factors",
    "Loader",
    "Share",
    "Situation",
    "Stateful",
    "Streams",
    "Training",
    "worker_device",
    "worker_mesh",
]

# Read once, when torchft is imported: its lighthouse and managers log several lines a quorum.
os.environ.setdefault("RUST_LOG", "warn")

_MODULES = {
    "LEFT": "wishes",
    "Loader": "loading",
    "Share": "share",
    "Stateful": "state",
    "Streams": "loading",
    "Training": "training",
    "worker_device": "crew",
    "worker_mesh": "crew",
}


def __getattr__(name: str) -> Any:
    # On use: the coordinator is of this package too, and is up at once because it needs no torch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in {"torch", "torchft"}:
            raise
        raise MissingExtraError(error.name, "train") from error
