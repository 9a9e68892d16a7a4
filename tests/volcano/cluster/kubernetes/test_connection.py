# SPDX-License-Identifier: Apache-2.0
"""The ways to an API server: files, contexts, tokens, authorities and proxies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from apiserver.certificates import Authority
from apiserver.faults import FaultyProxy, Refuse
from apiserver.server import ApiServer
from kfp_volcano.errors import ForbiddenError, KfpVolcanoError, SpecError, UnavailableError
from kfp_volcano.volcano.cluster import connect
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.kubernetes import connection
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import Connection, from_kubeconfig, in_cluster
from kfp_volcano.volcano.cluster.kubernetes.request import Request

READ = Request("get", KINDS["ConfigMap"], "ns", "a")
FINE = Refuse(200, body={"kind": "ConfigMap", "metadata": {}})


def ask(way: Connection) -> int:
    return way.send(READ, read_s=10.0).status


def edited(file: Path, **cluster: str) -> Path:
    """The kubeconfig with other facts of its cluster."""
    content = yaml.safe_load(file.read_text())
    content["clusters"][0]["cluster"] |= cluster
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_context_that_is_not_there_is_told_with_those_that_are(ill: FaultyProxy, tmp_path: Path) -> None:
    """A misspelt context is wrong input, and the message helps."""
    with pytest.raises(SpecError, match=r"kubeconfig .*its contexts are faulty"):
        from_kubeconfig(ill.kubeconfig(tmp_path), "other")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "kind: Config\n", "clusters: 7\n"])
def test_a_file_that_is_no_kubeconfig_is_wrong_input(tmp_path: Path, text: str | None) -> None:
    """Absent, empty or broken: an error of this project, with the file's name, never a traceback."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SpecError, match=str(file)):
        from_kubeconfig(file)


def test_renewed_credentials_are_taken(ill: FaultyProxy, tmp_path: Path) -> None:
    """When the server does not accept a token any more its file is read again, and so is the kubeconfig."""
    token = tmp_path / "token"
    token.write_text("old")
    way = from_kubeconfig(ill.kubeconfig(tmp_path, {"tokenFile": str(token)}))
    token.write_text("new")
    ill.plan(Refuse(401), FINE)
    assert ask(way) == 200
    assert [seen.headers["authorization"] for seen in ill.seen] == ["Bearer old", "Bearer new"]


def test_the_kubeconfigs_proxy_is_used(ill: FaultyProxy, tmp_path: Path) -> None:
    """`proxy-url` of the cluster."""
    way = from_kubeconfig(edited(ill.kubeconfig(tmp_path), server="http://api.invalid", **{"proxy-url": ill.url}))
    ill.plan(FINE)
    assert ask(way) == 200
    assert ill.seen[0].path == f"http://api.invalid{READ.path}"


def test_the_environments_proxy_is_used_with_its_exceptions(
    ill: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTPS_PROXY, unless NO_PROXY names the server."""
    monkeypatch.setenv("HTTPS_PROXY", ill.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    ill.plan(FINE, FINE)
    assert ask(from_kubeconfig(ill.kubeconfig(tmp_path))) == 200
    assert ask(from_kubeconfig(edited(ill.kubeconfig(tmp_path), server="http://api.invalid"))) == 200
    assert [urlsplit(seen.path).netloc for seen in ill.seen] == ["", "api.invalid"]


@pytest.mark.cluster
def test_a_certificate_of_another_authority_is_not_trusted(apiserver: ApiServer, tmp_path: Path) -> None:
    """It is told at once, and not tried again: no retry can help."""
    content = yaml.safe_load(apiserver.kubeconfig("stranger").read_text())
    other = Authority(tmp_path)
    content["clusters"][0]["cluster"]["certificate-authority"] = str(other.pair.certificate)
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ForbiddenError, match=r"is not trusted: .*certificate-authority"):
        KubernetesCluster(from_kubeconfig(file)).list("Node")


@pytest.mark.cluster
def test_a_pod_reaches_its_cluster(
    apiserver: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its service account's files, which are read again when the token has been renewed."""
    apiserver.create_service_account("step", namespace)
    user = yaml.safe_load(apiserver.token_kubeconfig("step", namespace).read_text())["users"][0]["user"]
    shutil.copy(apiserver.authority, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("expired")
    host, _, port = apiserver.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    cluster = KubernetesCluster(in_cluster(tmp_path))
    with pytest.raises(ForbiddenError, match="log in again, or renew the token"):
        cluster.list("Pod", namespace)
    (tmp_path / "token").write_text(user["token"])
    with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:step"):
        cluster.list("Pod", namespace)


def test_a_process_that_is_no_pod_has_no_cluster_of_its_own(tmp_path: Path) -> None:
    """Said in words."""
    with pytest.raises(SpecError, match="no pod with a service account"):
        in_cluster(tmp_path)


@pytest.mark.parametrize("name", ["", "nowhere", "kubernetes:absent", "in-cluster"])
def test_a_name_that_leads_nowhere_is_told(name: str) -> None:
    """Whatever is named, the error is this project's."""
    with pytest.raises(KfpVolcanoError):
        connect.connect(name)


def test_names_lead_to_their_clusters(ill: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubernetes`, with a context or without, and nothing at all, take the usual kubeconfig; a pod takes its own."""
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "absent"), str(ill.kubeconfig(tmp_path))]))
    ill.plan(*[FINE] * 3)
    for name in ("kubernetes", "kubernetes:faulty", ""):
        assert connect.connect(name).get("ConfigMap", "a", "ns")["kind"] == "ConfigMap"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setattr(connection, "in_cluster", lambda: (_ for _ in ()).throw(UnavailableError("the pod's")))
    with pytest.raises(UnavailableError, match="the pod's"):
        connect.connect("")
