# SPDX-License-Identifier: Apache-2.0
"""What all tests share: a clean environment, the shared data, hypothesis' profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["anywhere.fixtures", "apiserver.fixtures"]

ROOT = Path(__file__).resolve().parent.parent

# The default run is the same each time; the full one looks elsewhere every time, and prints what finds a fault again.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile(
    "full", parent=settings.get_profile("default"), derandomize=False, max_examples=1000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--kubeconfig FILE`: run tests marked `anywhere` on that cluster; `--test-image IMAGE`: in that image."""
    parser.addoption("--kubeconfig", dest="kubeconfig", help="run the tests marked `anywhere` on this cluster")
    parser.addoption("--test-image", dest="test_image", help="an image with a shell that the cluster's nodes can run")
    parser.addoption("--minutes", dest="minutes", default="20", help="how long the soak lasts")
    parser.addoption("--soak-seed", dest="soak_seed", default="0", help="what happens in the soak, and in which order")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's environment reaches a test."""
    for name in list(os.environ):
        if name.startswith(("KFP_VOLCANO_", "VC_", "RAY_", "TORCHFT_")) and name != "KFP_VOLCANO_SHARED":
            monkeypatch.delenv(name)
    monkeypatch.setenv("KUBECONFIG", os.devnull)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public data the repository does not contain; skips where it is absent."""
    path = Path(os.environ.get("KFP_VOLCANO_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"shared data is absent: {path} (set KFP_VOLCANO_SHARED)")
    return path
