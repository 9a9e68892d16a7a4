# SPDX-License-Identifier: Apache-2.0
"""The ssh plugin: one key pair a Job, mounted in all of its pods."""

from __future__ import annotations

import base64
from typing import Any

from kfp_volcano.volcano.model.world import World

JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "job"},
    "spec": {
        "minAvailable": 2,
        "maxRetry": 5,
        "queue": "default",
        "plugins": {"svc": [], "ssh": ["--ssh-key-file-path=/keys", "--ssh-port=2222"]},
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "tasks": [
            {
                "name": name,
                "replicas": 1,
                "minAvailable": 1,
                "template": {
                    "spec": {
                        "containers": [{"name": "c", "image": "i"}],
                        "initContainers": [{"name": "n", "image": "i"}],
                    }
                },
            }
            for name in ("launcher", "worker")
        ],
    },
}


def secret(lab: Any) -> dict[str, str]:
    found = lab.world.get("Secret", ("default", "job-ssh"))
    return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}


def test_all_pods_of_a_job_have_its_keys(lab: Any) -> None:
    """Private and public, who is let in, and the hosts with the port; for containers and init containers."""
    lab.world._new_keys = lambda: ("private", "public")
    lab.submit(JOB)
    lab.settle()
    data = secret(lab)
    assert (data["id_rsa"], data["id_rsa.pub"], data["authorized_keys"]) == ("private", "public", "public")
    assert "Host job-worker-0\n  HostName job-worker-0.job\n  Port 2222\n" in data["config"]
    for task in ("launcher", "worker"):
        spec = lab.world.get("Pod", ("default", f"job-{task}-0"))["spec"]
        (volume,) = (each for each in spec["volumes"] if "secret" in each)
        assert volume["secret"]["defaultMode"] == 0o600
        assert {"key": "id_rsa", "path": ".ssh/id_rsa"} in volume["secret"]["items"]
        for container in (*spec["containers"], *spec["initContainers"]):
            assert {"name": "job-ssh", "mountPath": "/keys", "subPath": ".ssh"} in container["volumeMounts"]


def test_the_keys_stay_for_the_jobs_life_and_go_with_it(lab: Any) -> None:
    """No sync makes new ones; a restart of the Job does; deleting it leaves none."""
    numbers = iter(range(9))
    lab.world._new_keys = lambda: (f"private-{next(numbers)}", "public")
    lab.submit(JOB)
    lab.settle()
    lab.settle()
    assert secret(lab)["id_rsa"] == "private-0"
    lab.end("job-worker-0", 1)
    lab.settle()
    assert secret(lab)["id_rsa"] == "private-1"
    lab.delete("job")
    lab.settle()
    assert not lab.world.objects["Secret"]


def test_a_world_without_keys_has_empty_ones(lab: Any) -> None:
    """Where pods never run nobody needs any."""
    assert isinstance(lab.world, World)
    lab.submit(JOB)
    lab.settle()
    assert secret(lab)["id_rsa"] == ""
