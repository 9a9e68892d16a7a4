# SPDX-License-Identifier: Apache-2.0
"""The plugin `ssh`: a key pair for each Job, with which its pods reach each other.

Source: pkg/controllers/job/plugins/ssh/ssh.go, Volcano 1.15.1. The Secret is never changed: its list of hosts is that
of the Job's creation.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.plugin_flags import flag

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.objects import Key, Manifest

__all__ = ["key_mount", "key_volume", "secret_key", "secret_without_keys", "with_keys"]

_FOLDER = ".ssh"
_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG = "id_rsa", "id_rsa.pub", "authorized_keys", "config"
_DEFAULT_PATH = "/root/.ssh"
_DEFAULT_PORT = "22"


def secret_key(job: Manifest) -> Key:
    """Where a Job's Secret is."""
    namespace, name = key_of(job)
    return namespace, f"{name}-ssh"


def secret_without_keys(job: Manifest, owner: dict[str, Any]) -> Manifest:
    """The Secret of a Job before `with_keys`."""
    namespace, name = secret_key(job)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "data": {_CONFIG: _encoded(_config(job))},
    }


def with_keys(secret: Manifest, private: str, public: str) -> Manifest:
    """The Secret with its keys; whoever has the private one is let in."""
    keys = {_PRIVATE: private, _PUBLIC: public, _AUTHORIZED: public}
    return {**secret, "data": {**{name: _encoded(text) for name, text in keys.items()}, **secret["data"]}}


def key_volume(job: Manifest) -> dict[str, Any]:
    """The volume of the Secret in a pod; readable by its owner alone, as ssh insists."""
    name = secret_key(job)[1]
    items = [{"key": each, "path": f"{_FOLDER}/{each}"} for each in (_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG)]
    return {"name": name, "secret": {"secretName": name, "items": items, "defaultMode": 0o600}}


def key_mount(job: Manifest) -> dict[str, Any]:
    """Where the containers of a pod have it."""
    path = flag(job["spec"]["plugins"]["ssh"], "ssh-key-file-path", _DEFAULT_PATH)
    return {"name": secret_key(job)[1], "mountPath": path, "subPath": _FOLDER}


def _config(job: Manifest) -> str:
    name, port = key_of(job)[1], flag(job["spec"]["plugins"]["ssh"], "ssh-port", _DEFAULT_PORT)
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in job["spec"]["tasks"]:
        for index in range(task["replicas"]):
            host = f"{name}-{task['name']}-{index}"
            lines += [f"Host {host}", f"  HostName {host}.{name}"]
            if port != _DEFAULT_PORT:
                lines.append(f"  Port {port}")
    return "\n".join([*lines, ""])


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
