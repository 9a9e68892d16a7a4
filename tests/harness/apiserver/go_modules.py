# SPDX-License-Identifier: Apache-2.0
"""Files of public Go modules: CRDs that other projects publish with their code. Fetched by Go, never copied here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from apiserver import binaries
from apiserver.server import ApiServer

__all__ = ["KUBERAY", "PROMETHEUS_OPERATOR", "Published", "install_crds"]

_SECONDS = 300.0
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Published:
    """A folder of CRDs in a module of one version."""

    module: str
    version: str
    checksum: str
    """As `go.sum` has it."""
    folder: str

    def files(self, *names: str) -> list[Path]:
        """Files of the folder; skips where Go is absent or the module cannot be had."""
        try:
            go = binaries.go_program()
        except SystemExit as error:
            pytest.skip(str(error))
        command = [go, "mod", "download", "-json", f"{self.module}@{self.version}"]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=_SECONDS, check=False)
        answer = json.loads(done.stdout or "{}")
        if "Dir" not in answer:
            pytest.skip(f"{self.module} cannot be had: {answer.get('Error') or done.stderr}")
        assert answer["Sum"] == self.checksum
        return [Path(answer["Dir"], self.folder, name) for name in names]


KUBERAY = Published(
    "github.com/ray-project/kuberay/ray-operator",
    "v1.5.0",
    "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=",
    "config/crd/bases",
)
PROMETHEUS_OPERATOR = Published(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    "example/prometheus-operator-crd",
)


def install_crds(server: ApiServer, *files: Path) -> None:
    """Have the API server serve what some CRDs define, once."""
    for file in files:
        crd = yaml.load(file.read_text(encoding="utf-8"), Loader=_SafeLoader)
        if server.admin.get(crd["apiVersion"], crd["kind"], crd["metadata"]["name"]).accepted:
            continue
        server.admin.create(crd).expect()
        for version in crd["spec"]["versions"]:
            path, plural = f"/apis/{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["plural"]
            server.apiserver.wait_until(lambda path=path, plural=plural: _served(server, path, plural), timeout_s=60.0)


def _served(server: ApiServer, path: str, plural: str) -> bool:
    answer = server.admin.request("GET", path)
    return answer.accepted and plural in {each["name"] for each in answer.body["resources"]}
