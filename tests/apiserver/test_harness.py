# SPDX-License-Identifier: Apache-2.0
"""The API server of the tests is a real one, with Volcano's rules in force."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import kubernetes
import psutil
import pytest

from apiserver import binaries
from apiserver.processes import Process, free_ports
from apiserver.server import ApiServer

QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}


@pytest.mark.cluster
def test_it_is_the_pinned_version(apiserver: ApiServer) -> None:
    """The server that answers is Kubernetes of the minor version that go.mod pins."""
    emulated = apiserver.admin.request("GET", "/version").expect()
    assert f"v1.{emulated['emulationMinor']}." in binaries.pinned_kubernetes()


@pytest.mark.cluster
def test_defaults_of_crd_and_policy(apiserver: ApiServer) -> None:
    """A Queue comes back with the CRD's default and the mutating policy's."""
    spec = apiserver.admin.create(QUEUE, dry_run=True).expect()["spec"]
    assert spec == {"weight": 1, "dequeueStrategy": "traverse", "reclaimable": True}


@pytest.mark.cluster
def test_dry_run_creates_nothing(apiserver: ApiServer) -> None:
    """An object that was created in a dry run is not there."""
    apiserver.admin.create(QUEUE, dry_run=True).expect()
    assert apiserver.admin.get(QUEUE["apiVersion"], "Queue", "q").status == 404


@pytest.mark.cluster
def test_rbac_decides_for_service_accounts(apiserver: ApiServer, namespace: str) -> None:
    """A service account's token says who it is, and it may do what a role grants and nothing else."""
    apiserver.create_service_account("reader", namespace)
    core = kubernetes.client.CoreV1Api(
        kubernetes.config.new_client_from_config(str(apiserver.token_kubeconfig("reader", namespace)))
    )
    with pytest.raises(kubernetes.client.ApiException, match=f"system:serviceaccount:{namespace}:reader"):
        core.list_namespaced_pod(namespace)
    _grant(apiserver, namespace, "reader", {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})
    assert core.list_namespaced_pod(namespace).items == []
    with pytest.raises(kubernetes.client.ApiException, match="cannot list resource"):
        core.list_namespaced_config_map(namespace)
    core.api_client.close()


@pytest.mark.cluster
def test_what_is_owned_goes_with_its_owner(controllers: ApiServer, namespace: str) -> None:
    """With the control plane's controllers a ConfigMap goes when the Job that owns it goes."""
    admin = controllers.admin
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = admin.create(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "owner", "namespace": namespace},
            "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}]},
        }
    ).expect()
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: job["metadata"][key] for key in ("name", "uid")}
    owned = {"name": "owned", "namespace": namespace, "ownerReferences": [owner]}
    admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned}).expect()
    admin.delete(job["apiVersion"], "Job", "owner", namespace).expect()
    controllers.apiserver.wait_until(
        lambda: admin.get("v1", "ConfigMap", "owned", namespace).status == 404, timeout_s=60.0
    )


def test_processes_end_with_the_tests_however_these_end(tmp_path) -> None:
    """A server process dies when the process that started it is killed."""
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from apiserver.processes import Process
        server = Process("server", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
        server.start()
        print(server.pid, flush=True)
        sys.stdin.read()
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "log"],
        env={"PYTHONPATH": str(binaries.MODULE.parent / "harness")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    server = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    server.wait(timeout=30)


def test_a_server_that_fails_says_why(tmp_path) -> None:
    """Waiting for a process that ends raises at once, with the end of its log."""
    broken = Process("broken", [sys.executable, "-c", "raise SystemExit('no such flag')"], tmp_path / "log")
    broken.start()
    with pytest.raises(RuntimeError, match=r"(?s)broken ended before it was ready.*no such flag"):
        broken.wait_until(lambda: False, timeout_s=60.0)


def _go(folder: Path, version: str) -> Path:
    """A program that says it is a Go of that version."""
    folder.mkdir()
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return program


def test_a_go_that_is_too_old_is_passed_over(tmp_path, monkeypatch) -> None:
    """What builds the programs is the first Go that can; where none can, it is said what would."""
    old, new = _go(tmp_path / "old", "go1.19.8"), _go(tmp_path / "new", "go1.25.1")
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setattr(binaries, "_INSTALLED", (str(tmp_path / "none"), str(new.parent)))
    assert binaries.go_program() == str(new)
    monkeypatch.setattr(binaries, "_INSTALLED", ())
    with pytest.raises(SystemExit, match=r"old/go is go1\.19\.8: scripts/setup --cluster installs one"):
        binaries.go_program()


def test_free_ports_differ() -> None:
    """Ports that are asked for together are different ones."""
    assert len(set(free_ports(20))) == 20


def _grant(apiserver: ApiServer, namespace: str, account: str, rule: dict) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": account, "namespace": namespace}}
    apiserver.admin.create({**role, "kind": "Role", "rules": [rule]}).expect()
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    apiserver.admin.create(binding).expect()
