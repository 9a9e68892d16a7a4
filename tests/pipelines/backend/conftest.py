# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.pipelines.client import Client
from kfp_volcano.pipelines.ir import CompiledPipeline, compiled
from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfpapi.server import KfpApi
from kfpapi.state import Backend

PIPELINE = """
from kfp import dsl

@dsl.component(base_image="python:3.11")
def work(epochs: int, name: str, share: float, wet: bool, sizes: list, more: dict): ...

@dsl.pipeline(name="small")
def small(epochs: int, name: str = "a", share: float = 0.5, wet: bool = False, sizes: list = [1], more: dict = {}):
    work(epochs=epochs, name=name, share=share, wet=wet, sizes=sizes, more=more).set_caching_options(False)
"""


@pytest.fixture(name="home", autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: kfp reads and writes there; and none of kfp's variables."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("kfp.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "home" / ".config" / "kfp" / "context.json"))
    for name in ("ENDPOINT", "UI_ENDPOINT", "SA_TOKEN_PATH", "IAP_OAUTH2_CLIENT_ID"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)
    return tmp_path / "home"


@pytest.fixture(name="backend")
def _backend() -> Backend:
    """What the server remembers."""
    return Backend()


@pytest.fixture(name="api")
def _api(backend: Backend) -> Iterator[KfpApi]:
    """A KFP backend; a request that its API's description does not know fails the test."""
    api = KfpApi(backend)
    api.start()
    yield api
    api.stop()
    assert api.violations == []


@pytest.fixture(name="client")
def _client(api: KfpApi, backend: Backend) -> Callable[..., Client]:
    """A client of that backend, for which time goes on when it waits."""

    def client(**access: Any) -> Client:
        patience = Patience(total_s=60.0, first_s=0.5, clock=backend.clock, sleep=backend.sleep, jitter=lambda: 0.0)
        return Client(api.url, patience=patience, **access)

    return client


@pytest.fixture(name="file", scope="session")
def _file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's Python file."""
    path = tmp_path_factory.mktemp("pipeline") / "small.py"
    path.write_text(PIPELINE)
    return path


@pytest.fixture(name="small", scope="session")
def _small(file: Path) -> CompiledPipeline:
    """The pipeline, compiled."""
    return compiled(file)
