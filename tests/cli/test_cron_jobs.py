# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano schedule` with a kubeconfig: TrainingJobs by CronJobs, with the commands of KFP's schedules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from apiserver.hands import Hands
from apiserver.server import ApiServer
from kfp_volcano.cli import main

pytestmark = pytest.mark.cluster

NIGHTLY = ("create", "nightly", "SPEC", "--cron", "30 2 * * *")


@pytest.fixture(name="schedule")
def _schedule(apiserver: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """`kfp-volcano schedule …` on the real API server; `SPEC` stands for the file of a TrainingJob."""
    hands = Hands(apiserver, namespace)
    hands.open_queue(namespace)
    workers = {"replicas": {"min": 1, "max": 2}, "resources": {"cpu": 1, "memory": "1Gi"}}
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {
            "framework": "pytorch",
            "image": "registry.example/train:1",
            "command": ["train"],
            "queue": namespace,
            "roles": {"worker": workers},
            "elasticity": {"strategy": "restart"},
        },
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    kubeconfig = str(apiserver.kubeconfig("schedules", "system:masters"))

    def schedule(*words: str) -> Result:
        words = tuple(str(file) if word == "SPEC" else word for word in words)
        return CliRunner().invoke(main, ["schedule", *words, "--kubeconfig", kubeconfig])

    yield schedule
    hands.close_queue(namespace)


def test_a_schedule_s_life_on_a_cluster(schedule: Callable[..., Result], namespace: str, apiserver: ApiServer) -> None:
    """Created, found unchanged, updated, paused, resumed, listed, deleted; the server takes every field."""
    place = ("-n", namespace)
    orders = [
        NIGHTLY,
        NIGHTLY,
        ("update", "nightly", "--every", "6h", *place),
        ("pause", "nightly", *place),
        ("resume", "nightly", *place),
    ]
    said = [schedule(*order).output.split()[-1] for order in orders]
    assert said == ["created", "unchanged", "updated", "paused", "resumed"]
    (listed,) = json.loads(schedule("list", "-o", "json", *place).stdout)
    assert (listed["when"], listed["work"], listed["enabled"]) == ("every 21600s", "TrainingJob digits", True)
    found = apiserver.admin.get("batch.volcano.sh/v1alpha1", "CronJob", "nightly", namespace).expect()
    assert found["spec"]["jobTemplate"]["metadata"]["annotations"]["kfp-volcano/owner"]
    assert schedule("delete", "nightly", "--yes", *place).output.split()[-1] == "deleted"
    assert apiserver.admin.get("batch.volcano.sh/v1alpha1", "CronJob", "nightly", namespace).status == 404


def test_what_only_a_backend_knows_is_refused(schedule: Callable[..., Result]) -> None:
    """An experiment, a pipeline's name, a host: none of a CronJob's business; nothing is done."""
    for option in (("--experiment", "x"), ("--pipeline", "x"), ("--host", "http://localhost:1")):
        result = schedule(*NIGHTLY, *option)
        assert result.exit_code == 2, result.output
        assert option[0] in result.output
    assert "epochs" in schedule(*NIGHTLY, "--param", "epochs=2").output
