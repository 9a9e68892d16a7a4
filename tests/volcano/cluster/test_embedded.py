# SPDX-License-Identifier: Apache-2.0
"""What the embedded cluster does beyond the port: environment, addresses, folders, and leaving nothing behind."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.cluster.logical_nodes import parse_nodes
from kfp_volcano.volcano.manifests.job import job_manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Manifest

DUMP = ["python", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
SECRET = {"KFP_VOLCANO_CLUSTER": "embedded:here", "RAY_AUTH_TOKEN": "secret"}


def completed(found: list[Manifest]) -> bool:
    return bool(found) and found[0].get("status", {}).get("state", {}).get("phase") == "Completed"


def test_only_the_coordinator_can_reach_the_cluster(
    tmp_path: Path, jobs: Any, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Address and token are in coordinator pods alone; what belongs to this process's Ray is in none."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-this-process")
    monkeypatch.setenv("KFP_VOLCANO_RUN_ID", "of-this-process")
    cluster = EmbeddedCluster(tmp_path, coordinator_env=SECRET)
    try:
        cluster.create(jobs.job("job", [jobs.task("coordinator", 1, DUMP, gpus=0), jobs.task("core", 1, DUMP)]))
        until(cluster, "Job", jobs.namespace, completed)
        seen = {task: json.loads(cluster.logs(f"job-{task}-0", jobs.namespace)[0]) for task in ("coordinator", "core")}
    finally:
        cluster.shutdown(0)
    assert seen["coordinator"].items() >= SECRET.items()
    assert not SECRET.keys() & seen["core"].keys()
    assert "KFP_VOLCANO_RUN_ID" not in seen["coordinator"]
    assert seen["core"]["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_container_sees_addresses_and_folders_of_this_machine(
    tmp_path: Path, jobs: Any, until: Callable[..., Any]
) -> None:
    """Host names become addresses, mount paths become folders, downward API and ConfigMaps are resolved."""
    mapped = tmp_path / "mapped"
    mapped.mkdir()
    cluster = EmbeddedCluster(tmp_path / "cluster", workdir=tmp_path, volumes={"checkpoints": mapped})
    env = [
        {"name": "PEER", "value": "job-core-1.job:29500"},
        {"name": "PEER_LONG", "value": f"tcp://job-core-1.job.{jobs.namespace}.svc.cluster.local:1"},
        {"name": "OTHER", "value": "not-job-core-1.job"},
        {"name": "OUT", "value": "/ckpt/out"},
        {"name": "AGAIN", "value": "$(OUT)/x $$(OUT) $(NONE)"},
        {"name": "LIKE", "value": "/ckpts/out"},
        {"name": "SELF", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['volcano.sh/task-index']"}}},
    ]
    container = {"env": env, "volumeMounts": [{"name": "data", "mountPath": "/ckpt"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    try:
        cluster.create(jobs.job("job", [jobs.task("core", 2, DUMP, container=container, volumes=volumes)]))
        until(cluster, "Job", jobs.namespace, completed)
        seen = [json.loads(cluster.logs(f"job-core-{index}", jobs.namespace)[0]) for index in range(2)]
    finally:
        cluster.shutdown(0)
    peer = seen[1]["IP"]
    assert peer.startswith("127.")
    assert peer != seen[0]["IP"]
    assert seen[0]["PEER"] == f"{peer}:29500"
    assert seen[0]["PEER_LONG"] == f"tcp://{peer}:1"
    assert seen[0]["VC_CORE_HOSTS"] == f"{seen[0]['IP']},{peer}"
    assert seen[0]["OTHER"] == "not-job-core-1.job"
    assert seen[0]["OUT"] == f"{mapped}/out"
    assert seen[0]["AGAIN"] == f"{mapped}/out/x $(OUT) $(NONE)"
    assert seen[0]["LIKE"] == "/ckpts/out"
    assert (seen[1]["SELF"], seen[1]["INDEX"]) == ("job-core-1", "1")


def test_clusters_on_one_machine_have_different_addresses(tmp_path: Path, jobs: Any, until: Callable[..., Any]) -> None:
    """The same Job on two clusters at once listens on addresses that do not clash."""
    clusters = [EmbeddedCluster(tmp_path / name) for name in ("a", "b")]
    try:
        addresses = set()
        for cluster in clusters:
            cluster.create(jobs.sleeping("job", 1))
            pods = until(cluster, "Pod", jobs.namespace, lambda found: found and "podIP" in found[0].get("status", {}))
            addresses.add(pods[0]["status"]["podIP"])
        assert len(addresses) == 2
    finally:
        for cluster in clusters:
            cluster.shutdown(0)


def test_shutdown_leaves_no_process(
    tmp_path: Path, jobs: Any, until: Callable[..., Any], marked: Callable[[str], list[psutil.Process]]
) -> None:
    """When shutdown returns all pods have ended, those that ignore SIGTERM and their daemons included."""
    marker = str(tmp_path)
    cluster = EmbeddedCluster(tmp_path, env={**os.environ, "MARKER": marker})
    stubborn = "trap '' TERM; setsid sleep 600 & while true; do sleep 1; done"
    cluster.create(jobs.job("job", [jobs.task("core", 2, ["sh", "-c", stubborn])]))
    until(cluster, "Pod", jobs.namespace, lambda pods: [pod["status"].get("phase") for pod in pods] == ["Running"] * 2)
    assert marked(marker)
    cluster.shutdown(grace_s=0.2)
    assert not marked(marker)


def test_init_containers_come_first(embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any]) -> None:
    """The container starts when its init containers have succeeded."""
    before = [{"name": f"init-{word}", "image": "unused", "command": ["echo", word]} for word in ("one", "two")]
    embedded.create(jobs.job("job", [jobs.task("core", 1, ["echo", "three"], initContainers=before)]))
    until(embedded, "Job", jobs.namespace, completed)
    assert embedded.logs("job-core-0", jobs.namespace)[0] == "one\ntwo\nthree\n"


def test_a_container_without_its_config_fails_in_words(
    embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any]
) -> None:
    """What the kubelet cannot resolve is told in the pod's status and its log."""
    missing = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k"}}}
    task = jobs.task("core", 1, ["true"], container={"env": [missing]}, restartPolicy="Never")
    embedded.create(jobs.job("job", [task]))
    pod = until(
        embedded, "Pod", jobs.namespace, lambda found: found and found[0].get("status", {}).get("phase") == "Failed"
    )[0]
    assert "absent" in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert "absent" in embedded.logs("job-core-0", jobs.namespace)[0]


@pytest.mark.parametrize(
    ("variable", "port"), [("TF_CONFIG", 2222), ("PET_RDZV_ENDPOINT", 29400), ("KFP_VOLCANO_HEAD", 6379)]
)
def test_servers_have_ports_of_their_own(
    tmp_path: Path, jobs: Any, until: Callable[..., Any], variable: str, port: int
) -> None:
    """They listen on all addresses of the machine: in what names them, and only there, each has the port of its pod."""
    cluster = EmbeddedCluster(tmp_path)
    text = f"job-core-0.job:{port} job-core-1.job:{port}"
    container = {"env": [{"name": variable, "value": text}, {"name": "OTHER", "value": text}]}
    try:
        cluster.create(jobs.job("job", [jobs.task("core", 2, DUMP, container=container)]))
        until(cluster, "Job", jobs.namespace, completed)
        seen = [json.loads(cluster.logs(f"job-core-{index}", jobs.namespace)[0]) for index in range(2)]
    finally:
        cluster.shutdown(0)
    ports = [each.rpartition(":")[2] for each in seen[0][variable].split()]
    assert ports == [each["KFP_VOLCANO_PORT"] for each in seen]
    assert ports[0] != ports[1]
    assert seen[0]["OTHER"].count(f":{port}") == 2


def test_secrets_and_config_maps_are_environment_and_files(
    embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any]
) -> None:
    """Single keys, all of them with a prefix, and files with the mode that was asked for."""
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"token": base64.b64encode(b"hush").decode()}}
    embedded.create({**secret, "metadata": {"name": "s3", "namespace": jobs.namespace}})
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"region": "here"}}
    embedded.create({**config, "metadata": {"name": "settings", "namespace": jobs.namespace}})
    container = {
        "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "token"}}}],
        "envFrom": [
            {"configMapRef": {"name": "settings"}, "prefix": "APP_"},
            {"secretRef": {"name": "absent", "optional": True}},
        ],
        "volumeMounts": [{"name": "keys", "mountPath": "/var/keys"}],
    }
    items = [{"key": "token", "path": "sub/t"}]
    volumes = [{"name": "keys", "secret": {"secretName": "s3", "items": items, "defaultMode": 0o400}}]
    command = ["sh", "-c", "echo $TOKEN $APP_region $(stat -c %a /var/keys/sub/t) $(cat /var/keys/sub/t)"]
    embedded.create(jobs.job("job", [jobs.task("core", 1, command, container=container, volumes=volumes)]))
    until(embedded, "Job", jobs.namespace, completed)
    assert embedded.logs("job-core-0", jobs.namespace)[0] == "hush here 400 hush\n"


def test_the_lists_of_hosts_follow_a_resize(
    embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """A pod that runs finds the addresses of those that came in the files that Volcano mounts."""
    embedded.create(jobs.sleeping("job", 1))
    until(embedded, "Job", jobs.namespace, lambda found: found[0].get("status", {}).get("running") == 1)
    embedded.patch("Job", "job", jobs.namespace, [{"op": "replace", "path": "/spec/tasks/1/replicas", "value": 2}])
    pods = until(
        embedded,
        "Pod",
        jobs.namespace,
        lambda found: sum("podIP" in pod.get("status", {}) for pod in found) == 3,
    )
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
    (file,) = (tmp_path / "cluster" / "pods" / jobs.namespace).glob("job-core-0-*/job-svc/elastic.host")
    assert file.read_text().split() == [addresses["job-elastic-0"], addresses["job-elastic-1"]]


def test_preflight_looks_at_this_machine(embedded: EmbeddedCluster, jobs: Any, tmp_path: Path) -> None:
    """Programs, scripts and folders that are missing are found, each with its place and a remedy."""
    (tmp_path / "cluster" / "volumes" / jobs.namespace).mkdir(parents=True)
    (tmp_path / "cluster" / "volumes" / jobs.namespace / "data").write_text("a file in the way")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    tasks = [
        jobs.task("a", 1, ["no-such-program"]),
        jobs.task("b", 1, ["python", "no_such.py"]),
        jobs.task("c", 1, ["true"], volumes=volumes),
        jobs.task("d", 3, ["true"], gpus=3, least=3),
    ]
    findings = {path: message for path, message, _ in embedded.preflight(jobs.job("job", tasks))}
    at = "spec.tasks[{}].template.spec."
    assert "no-such-program" in findings[at.format(0) + "containers[0].command"]
    assert "no_such.py" in findings[at.format(1) + "containers[0].command"]
    assert "data" in findings[at.format(2) + "volumes[0]"]
    assert "spec.minAvailable" in findings


def test_preflight_looks_behind_what_starts_a_program(embedded: EmbeddedCluster) -> None:
    """A program that is missing is found behind the agent, the wait for MPI's workers, and torchrun's set-up."""

    def missing(framework: str, strategy: str, roles: dict[str, Any]) -> list[str]:
        spec = {"framework": framework, "image": "x", "command": ["no-such/torchrun"], "queue": "research"}
        value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}}
        job = training_job({**value, "spec": {**spec, "roles": roles, "elasticity": {"strategy": strategy}}})
        manifest = job_manifest(job, name="a", run_id="r", step="s", workers=1)
        return [message for path, message, _ in embedded.preflight(manifest) if path.endswith("command")]

    one = {"worker": {"replicas": 1}}
    for framework, strategy, roles in (
        ("custom", "restart", one),
        ("pytorch", "fixed", one),
        ("pytorch", "restart", one),
        ("mpi", "fixed", {"launcher": {"replicas": 1}, **one}),
        ("mpi", "restart", {"launcher": {"replicas": 1}, **one}),
    ):
        (message,) = missing(framework, strategy, roles)
        assert "no-such/torchrun" in message


def test_scheduling_is_told_in_events(embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any]) -> None:
    """A gang that waits has an Event with the reason, regarding its Job."""
    embedded.create(jobs.sleeping("job", 3, gpus=3))
    events = until(
        embedded,
        "Event",
        jobs.namespace,
        lambda found: [each for each in found if each["reason"] == "PodGroupPending"],
    )
    told = next(each for each in events if each["reason"] == "PodGroupPending")
    assert told["involvedObject"]["name"] == "job"
    assert "nvidia.com/gpu" in told["message"]


def test_a_finished_job_expires(embedded: EmbeddedCluster, jobs: Any, until: Callable[..., Any]) -> None:
    """A Job with a time to live is removed when that is over."""
    embedded.create(jobs.job("job", [jobs.task("core", 1, ["true"])], ttlSecondsAfterFinished=0))
    until(embedded, "Pod", jobs.namespace, lambda found: found)
    until(embedded, "Job", jobs.namespace, lambda found: not found)


@pytest.mark.parametrize("text", ["", "2", "x4", "0x4", "2x-1", "axb", "2x4,", "2x4@", "2x4@24", "1x0@24Gi", "1x1@0Gi"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    """Nodes are written as a number of nodes and their GPUs."""
    with pytest.raises(SpecError, match="2x4"):
        parse_nodes(text)


def test_nodes_have_whole_gpus_or_shared_ones(tmp_path: Path) -> None:
    """Groups are numbered through; shared ones look as the device plugin leaves them."""
    cluster = EmbeddedCluster(tmp_path, nodes="1x4,2x2@24Gi")
    try:
        nodes = {node["metadata"]["name"]: node for node in cluster.list("Node")[0]}
        assert {name: node["status"]["allocatable"].get("nvidia.com/gpu") for name, node in nodes.items()} == {
            "node-0": "4",
            "node-1": None,
            "node-2": None,
        }
        shares = nodes["node-2"]["status"]["allocatable"]
        assert shares.items() >= {
            ("volcano.sh/vgpu-number", "20"),
            ("volcano.sh/vgpu-memory", "49152"),
            ("volcano.sh/vgpu-cores", "200"),
        }
        assert nodes["node-2"]["metadata"]["annotations"]["volcano.sh/node-vgpu-register"].count("24576") == 2
    finally:
        cluster.shutdown(grace_s=0)


def test_the_classes_of_deploy_are_there(embedded: EmbeddedCluster) -> None:
    """As an administrator would have installed them; pods get their values."""
    classes = {each["metadata"]["name"]: each["value"] for each in embedded.list("PriorityClass")[0]}
    assert classes["batch"] > classes["batch-surplus"] > classes["batch-low"]
