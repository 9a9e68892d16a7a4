# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.certificates import Authority
from kfp_volcano.errors import ClusterError, SpecError
from kfp_volcano.pipelines.backend.access import Access
from kfp_volcano.pipelines.backend.connection import Connection
from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfpapi.server import KfpApi
from kfpapi.state import Backend


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    """One that nobody knows but the test."""
    folder = tmp_path / "authority"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture(name="secure")
def _secure(authority: Authority) -> Iterator[KfpApi]:
    """A backend that speaks TLS, with a certificate of that authority."""
    api = KfpApi(Backend(), identity=authority.server("127.0.0.1"))
    api.start()
    yield api
    api.stop()


def reached(**access: object) -> bool:
    """Whether the backend answers."""
    backend = Backend()
    patience = Patience(total_s=5.0, clock=backend.clock, sleep=backend.sleep)
    return Connection(Access(**access), patience).multi_user is False  # type: ignore[arg-type]


def test_a_private_authority_is_trusted_where_it_is_named(secure: KfpApi, authority: Authority):
    """With its certificate; without, the error says how; unless nothing is to be checked."""
    assert reached(host=secure.url, ca_cert=authority.pair.certificate)
    with pytest.raises(ClusterError, match="--ca-cert"):
        reached(host=secure.url)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_need_not_be_checked(secure: KfpApi):
    """Where that is said."""
    assert reached(host=secure.url, verify_tls=False)


def test_the_environment_fills_in_what_is_not_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Host, token, cookies, UI and proxy; what is said goes before it."""
    file = tmp_path / "token"
    file.write_text("secret")
    for name, value in {
        "KF_PIPELINES_ENDPOINT": "kfp.example.org/",
        "KF_PIPELINES_UI_ENDPOINT": "https://ui.example.org/",
        "KF_PIPELINES_SA_TOKEN_PATH": str(file),
        "KFP_VOLCANO_KFP_COOKIES": "session=1",
        "HTTPS_PROXY": "http://proxy.example.org:3128",
        "NO_PROXY": "inner.example.org",
    }.items():
        monkeypatch.setenv(name, value)
    found = Access().complete()
    assert (found.host, found.ui) == ("https://kfp.example.org", "https://ui.example.org")
    assert (found.cookies, found.token, found.token_file) == ("session=1", "", file)
    assert found.proxy == "http://proxy.example.org:3128"
    assert Access(host="https://inner.example.org").complete().proxy == ""
    monkeypatch.setenv("KFP_VOLCANO_KFP_TOKEN", "told")
    assert (Access().complete().token, Access().complete().token_file) == ("told", None)
    assert Access(token_file=file).complete().token == ""


def test_a_token_file_that_the_environment_names_and_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch):
    """At once, not with the first request."""
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", "/nowhere/token")
    with pytest.raises(SpecError, match="/nowhere/token"):
        Access(host="https://kfp.example.org").complete()
