# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

from kfpapi.server import KfpApi
from kfpapi.state import Backend


@pytest.fixture(name="api")
def _api() -> Iterator[KfpApi]:
    """A KFP backend; a request that its API's description does not know fails the test."""
    api = KfpApi(Backend(), tick_s=10.0)
    api.start()
    yield api
    api.stop()
    assert api.violations == []
