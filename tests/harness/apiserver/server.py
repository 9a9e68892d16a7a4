# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API on loopback: etcd, kube-apiserver, and the controllers of the control plane where asked for.

Volcano's CRDs and admission policies are installed; Volcano's own programs and kubelets are not there. Everything is
as on a cluster: TLS, RBAC, service accounts and their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from apiserver.certificates import Authority, Pair
from apiserver.client import Client
from apiserver.processes import Process, free_ports

__all__ = ["ApiServer"]

_HOST = "127.0.0.1"
_START_S = 120.0
_CONFLICT = 409
_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)
"""What a namespace needs to be usable, and what removes objects whose owners are gone."""


class ApiServer:
    """One running API server. `admin` may do everything; `kubeconfig` and `token` make other users' access."""

    def __init__(self, programs: Path, folder: Path) -> None:
        """Prepare one with its files in `folder`, which must be empty; nothing runs before `start`."""
        self._programs = programs
        self._folder = folder
        self._authority = Authority(folder)
        self._signing_key = self._authority.signing_key()
        client_port, peer_port, port = free_ports(3)
        self.url = f"https://{_HOST}:{port}"
        self.etcd_url = f"http://{_HOST}:{client_port}"
        self.etcd = self._etcd(self.etcd_url, f"http://{_HOST}:{peer_port}")
        self.apiserver = self._apiserver(port, self.etcd_url)
        self._controllers: Process | None = None
        self.authority = self._authority.pair.certificate
        """The certificate that its own is signed with."""
        self.administrator = self._authority.client("admin", "system:masters")
        self.admin = self._client(self.administrator)

    def start(self) -> None:
        """Start it and wait until it serves. Raises RuntimeError with the end of the log where it does not."""
        self.etcd.start()
        self.apiserver.start()
        self.apiserver.wait_until(self.admin.ready, timeout_s=_START_S)
        # It makes this namespace itself, a moment after it is ready.
        self.apiserver.wait_until(lambda: self.admin.get("v1", "Namespace", "default").accepted, timeout_s=_START_S)

    def stop(self) -> None:
        """End every process; clients of it get nothing any more."""
        for process in (self._controllers, self.apiserver, self.etcd):
            if process is not None:
                process.stop()
        self.admin.close()

    def install_volcano(self, data: Path) -> None:
        """Install Volcano's CRDs and admission policies, and wait until both are in force."""
        crds = sorted(data.joinpath("crds").glob("*.yaml"))
        self.admin.install(*crds)
        for file in crds:
            name = yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"]
            self.apiserver.wait_until(lambda name=name: self._established(name), timeout_s=_START_S)
        self.admin.install(data / "admission-policies.yaml")
        self.apiserver.wait_until(self._policies_in_force, timeout_s=_START_S)

    def start_controllers(self) -> None:
        """Start the control plane's controllers: garbage collection, namespaces, service accounts."""
        controllers = self._controller_manager()
        self._controllers = controllers
        controllers.start()
        controllers.wait_until(
            lambda: self.admin.get("v1", "ServiceAccount", "default", "default").accepted, timeout_s=_START_S
        )

    def create_namespace(self, name: str, **annotations: str) -> None:
        """A namespace with what its controller would put there, so that pods can be created in it at once."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}
        self.admin.create(namespace).expect()
        self.create_service_account("default", name)

    def create_service_account(self, name: str, namespace: str = "default") -> None:
        """A service account; nothing happens where it exists."""
        metadata = {"name": name, "namespace": namespace}
        created = self.admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        assert created.accepted or created.status == _CONFLICT, created.message

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """The kubeconfig of a user who comes with a certificate; what they may do is for RBAC to say."""
        pair = self._authority.client(user, *groups)
        return self._kubeconfig(user, {"client-certificate": str(pair.certificate), "client-key": str(pair.key)})

    def token_kubeconfig(self, account: str, namespace: str) -> Path:
        """The kubeconfig of a service account, which must exist, with a token that is good for an hour."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token = self.admin.request("POST", path, request).expect()["status"]["token"]
        return self._kubeconfig(f"{namespace}-{account}", {"token": token})

    def _client(self, pair: Pair) -> Client:
        authority = self._authority.pair.certificate
        return Client(self.url, authority, certificate=pair.certificate, key=pair.key)

    def _kubeconfig(self, user: str, credentials: Mapping[str, str]) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self._authority.pair.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": dict(credentials)}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "current-context": "tests",
        }
        file = self._folder / f"{user.replace(':', '_')}.kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return file

    def _established(self, crd: str) -> bool:
        found = self.admin.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd)
        conditions = (found.body.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _policies_in_force(self) -> bool:
        """Policies take effect some time after they are created: each kind's shows in an answer it changes."""
        job = self.admin.create(_PROBE_JOB, dry_run=True)
        queue = self.admin.create(_PROBE_QUEUE, dry_run=True)
        group = self.admin.create(_PROBE_GROUP, dry_run=True)
        hypernode = self.admin.create(_PROBE_HYPERNODE, dry_run=True)
        pod = self.admin.create(_PROBE_POD, dry_run=True)
        refused = (job, pod, hypernode)
        return (
            all("ValidatingAdmissionPolicy" in answer.message for answer in refused)
            and (queue.body.get("spec") or {}).get("reclaimable") is True
            and group.accepted
        )

    def _etcd(self, clients: str, peers: str) -> Process:
        command = [
            self._programs / "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        return Process("etcd", command, self._folder / "etcd.log")

    def _apiserver(self, port: int, etcd: str) -> Process:
        server = self._authority.server(_HOST, "localhost", "10.0.0.1", "kubernetes.default.svc")
        command = [
            self._programs / "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={self._authority.pair.certificate}",
            f"--service-account-key-file={self._signing_key}",
            f"--service-account-signing-key-file={self._signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--feature-gates=MutatingAdmissionPolicy=true",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            f"--cert-dir={self._folder}",
        ]
        return Process("kube-apiserver", command, self._folder / "kube-apiserver.log")

    def _controller_manager(self) -> Process:
        command = [
            self._programs / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--service-account-private-key-file={self._signing_key}",
            f"--root-ca-file={self._authority.pair.certificate}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            f"--cert-dir={self._folder}",
        ]
        return Process("kube-controller-manager", command, self._folder / "kube-controller-manager.log")


def _probe(version: str, kind: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "probe", **metadata}, "spec": dict(spec)}


_PROBE_JOB = _probe("batch.volcano.sh/v1alpha1", "Job", {"minAvailable": 2, "tasks": [{"name": "w", "replicas": 1}]})
_PROBE_QUEUE = _probe("scheduling.volcano.sh/v1beta1", "Queue", {})
_PROBE_GROUP = _probe("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 1})
_PROBE_HYPERNODE = _probe(
    "topology.volcano.sh/v1alpha1",
    "HyperNode",
    {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}]},
)
_PROBE_POD = _probe(
    "v1",
    "Pod",
    {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]},
    annotations={"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "1"},
)
