# SPDX-License-Identifier: Apache-2.0
"""Fixtures of a real API server, for any test; a test that uses one is marked `cluster`."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver import binaries
from apiserver.faults import FaultyProxy
from apiserver.server import ApiServer

__all__ = ["apiserver", "controllers", "ill", "kubeconfig", "namespace", "proxy"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def apiserver(shared: Path) -> Iterator[ApiServer]:
    """A real API server with Volcano's CRDs and admission policies, one for all tests; skips where it cannot be."""
    absent = binaries.missing()
    if absent:
        pytest.skip(f"{', '.join(absent)} not built: run scripts/setup --cluster (looked in {binaries.folder()})")
    volcano = shared / "volcano"
    if not volcano.joinpath("admission-policies.yaml").is_file():
        pytest.skip(f"Volcano's admission policies are absent: {volcano} (set KFP_VOLCANO_SHARED)")
    folder = Path(tempfile.mkdtemp(prefix="kfp-volcano-apiserver-"))
    server = ApiServer(binaries.folder(), folder)
    try:
        server.start()
        server.create_service_account("default")
        server.install_volcano(volcano)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def controllers(apiserver: ApiServer) -> ApiServer:
    """The API server with the control plane's controllers: what is owned goes with its owner, namespaces can go."""
    apiserver.start_controllers()
    return apiserver


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """An administrator's access to the cluster of `--kubeconfig`, or to the real API server of the tests."""
    given = request.config.getoption("kubeconfig")
    if given is not None:
        return Path(given)
    controllers: ApiServer = request.getfixturevalue("controllers")
    return controllers.kubeconfig("kubeconfig", "system:masters")


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """A fresh namespace in which pods can be created."""
    name = f"test-{next(_numbers)}"
    apiserver.create_namespace(name)
    return name


@pytest.fixture
def ill() -> Iterator[FaultyProxy]:
    """A server that can only do harm."""
    proxy = FaultyProxy()
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def proxy(apiserver: ApiServer) -> Iterator[FaultyProxy]:
    """A proxy in front of the real API server, by which everybody is its administrator."""
    proxy = FaultyProxy(apiserver.url, apiserver.authority, apiserver.administrator)
    proxy.start()
    yield proxy
    proxy.stop()
