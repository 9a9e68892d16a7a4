# SPDX-License-Identifier: Apache-2.0
"""torchft's lighthouse, by which workers find each other, without torch.

Importing `torchft` imports torch: seconds, and hundreds of megabytes in a pod that computes nothing. The lighthouse is
in torchft's compiled module alone, so that is loaded by itself: a coordinator that was killed is back at once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from kfp_volcano.errors import MissingExtraError

__all__ = ["HEARTBEAT_TIMEOUT_S", "lighthouse"]

HEARTBEAT_TIMEOUT_S = 0.8
"""After so much silence a worker is taken for dead. Managers beat every 0.1 s."""

_JOIN_TIMEOUT_S = 60.0
"""How long a quorum waits for a worker whose heart beats but that does not come: one that hangs, or is very slow."""

_QUORUM_TICK_S = 0.02
_MODULE = "torchft._torchft"


def lighthouse(host: str, port: int) -> Any:
    """A lighthouse that listens on host and port, with `address()` and `shutdown()`.

    Raises:
        OSError: it cannot listen there.
        MissingExtraError: torchft is not installed.
    """
    try:
        return _compiled().LighthouseServer(
            bind=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            min_replicas=1,
            join_timeout_ms=round(_JOIN_TIMEOUT_S * 1000),
            quorum_tick_ms=round(_QUORUM_TICK_S * 1000),
            heartbeat_timeout_ms=round(HEARTBEAT_TIMEOUT_S * 1000),
        )
    except RuntimeError as error:
        raise OSError(f"the lighthouse cannot listen on {host}:{port}: {error}") from error


def _compiled() -> Any:
    """The compiled module of torchft; the package's own where that has been imported."""
    os.environ.setdefault("RUST_LOG", "warn")  # read once, when it is loaded: it logs several lines a quorum
    if _MODULE in sys.modules:
        return sys.modules[_MODULE]
    package = importlib.util.find_spec("torchft")
    if package is None or package.origin is None:
        raise MissingExtraError("torchft", "train")
    path = next(Path(package.origin).parent.glob("_torchft.*.so"))
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded", name="torchft")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
