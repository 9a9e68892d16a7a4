# SPDX-License-Identifier: Apache-2.0
"""Jobs of other operators, as their users write them, and what comes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kfp_volcano.volcano.manifests.convert.conversion import Converted, Refused, convert_files

Value = dict[str, Any]

POD: Value = {
    "metadata": {"labels": {"app": "bert"}, "annotations": {"sidecar.istio.io/inject": "false"}},
    "spec": {
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "hostNetwork": True,
        "schedulerName": "volcano",
        "terminationGracePeriodSeconds": 120,
        "securityContext": {"fsGroup": 1000},
        "initContainers": [
            {"name": "fetch", "image": "fetch:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        ],
        "containers": [
            {
                "name": "trainer",
                "image": "registry.example/train:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "train.py"],
                "args": ["--epochs", "3"],
                "workingDir": "/app",
                "env": [
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
                    {"name": "ADDRESS", "value": "http://$(POD_IP)"},
                    {"name": "my.dotted", "value": "x"},
                ],
                "envFrom": [{"secretRef": {"name": "s3", "optional": True}, "prefix": "S_"}],
                "resources": {
                    "requests": {"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 2},
                    "limits": {"cpu": 16, "memory": "32Gi", "nvidia.com/gpu": 2, "rdma/ib": 1, "hugepages-2Mi": "1Gi"},
                },
                "securityContext": {"privileged": False},
                "livenessProbe": {"exec": {"command": ["ls"]}},
                "ports": [{"containerPort": 9090, "name": "metrics"}],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data", "subPath": "v2", "readOnly": True},
                    {"name": "data", "mountPath": "/cache"},
                    {"name": "dshm", "mountPath": "/dev/shm"},
                    {"name": "conf", "mountPath": "/etc/train"},
                    {"name": "share", "mountPath": "/share"},
                ],
            },
            {"name": "log-agent", "image": "fluentd:1", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
            {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
            {"name": "conf", "configMap": {"name": "conf", "defaultMode": 256, "items": [{"key": "a", "path": "b"}]}},
            {"name": "logs", "emptyDir": {}},
            {"name": "share", "nfs": {"server": "10.0.0.1", "path": "/share"}},
        ],
    },
}


def template(container: str = "trainer", **changes: Any) -> Value:
    """The pod template, its training container called and changed so."""
    pod: Value = copy.deepcopy(POD)
    training = pod["spec"]["containers"][0]
    training.update({"name": container, **changes})
    pod["spec"]["containers"][0] = {key: value for key, value in training.items() if value is not None}
    return pod


def job(kind: str, spec: Value, *, version: str = "kubeflow.org/v1", name: str = "bert") -> Value:
    """A job of a kind."""
    metadata = {"name": name, "namespace": "nlp", "labels": {"team": "nlp"}, "uid": "4b1e"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def replicas(count: int | None = 1, restart: str | None = "OnFailure", **template_changes: Any) -> Value:
    """A replica spec."""
    written = {"replicas": count, "restartPolicy": restart, "template": template(**template_changes)}
    return {key: value for key, value in written.items() if value is not None}


POLICY: Value = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 3600,
    "activeDeadlineSeconds": 86400,
    "backoffLimit": 3,
    "schedulingPolicy": {"minAvailable": 2, "queue": "research", "priorityClass": "high", "minResources": {"cpu": 8}},
}


def pytorch(*, policy: Value | None = None, **spec: Any) -> Value:
    """A PyTorchJob of a master and three workers."""
    specs = {"Master": replicas(1, container="pytorch"), "Worker": replicas(3, container="pytorch")}
    return job("PyTorchJob", {"pytorchReplicaSpecs": specs, "runPolicy": POLICY if policy is None else policy, **spec})


def train_job(**spec: Any) -> Value:
    """A TrainJob on the runtime of PyTorch that Trainer brings along."""
    trainer = {
        "numNodes": 3,
        "command": ["torchrun", "train.py"],
        "env": [{"name": "A", "value": "1"}],
        "resourcesPerNode": {"limits": {"cpu": 4, "memory": "8Gi"}},
    }
    reference = {"name": "torch-distributed", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    given = {"runtimeRef": reference, "trainer": trainer, **spec}
    return job("TrainJob", given, version="trainer.kubeflow.org/v1alpha1")


def volcano_job(**spec: Any) -> Value:
    """A Volcano Job of two tasks."""
    tasks = [
        {"name": "server", "replicas": 1, "template": template()},
        {
            "name": "worker",
            "replicas": 3,
            "minAvailable": 2,
            "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
            "template": template(),
        },
    ]
    given = {
        "schedulerName": "volcano",
        "queue": "research",
        "minAvailable": 3,
        "maxRetry": 5,
        "plugins": {"svc": [], "env": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": tasks,
        **spec,
    }
    return job("Job", given, version="batch.volcano.sh/v1alpha1")


def every_kind() -> dict[str, Value]:
    """A job of each kind."""
    launcher = replicas(1, None, container="mpi", command=["mpirun", "train"])
    return {
        "pytorch": pytorch(),
        "pytorch-elastic": pytorch(
            elasticPolicy={"minReplicas": 2, "maxReplicas": 6, "maxRestarts": 10, "rdzvBackend": "c10d", "rdzvPort": 1},
            nprocPerNode="2",
        ),
        "tensorflow": job(
            "TFJob",
            {
                "tfReplicaSpecs": {
                    "Chief": replicas(1, container="tensorflow"),
                    "PS": replicas(2, container="tensorflow"),
                    "Worker": replicas(3, container="tensorflow"),
                    "Evaluator": replicas(1, container="tensorflow"),
                },
                "runPolicy": POLICY,
                "successPolicy": "AllWorkers",
            },
        ),
        "mpi": job("MPIJob", {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": replicas(2)}, "slotsPerWorker": 2}),
        "mpi-v2": job(
            "MPIJob",
            {
                "mpiReplicaSpecs": {"Launcher": launcher, "Worker": replicas(2, command=["/usr/sbin/sshd", "-De"])},
                "sshAuthMountPath": "/home/mpiuser/.ssh",
                "mpiImplementation": "Intel",
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": POLICY,
            },
            version="kubeflow.org/v2beta1",
        ),
        "xgboost": job("XGBoostJob", {"xgbReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2, "ExitCode")}}),
        "paddle": job(
            "PaddleJob", {"paddleReplicaSpecs": {"Worker": replicas(2)}, "elasticPolicy": {"maxReplicas": 4}}
        ),
        "jax": job("JAXJob", {"jaxReplicaSpecs": {"Worker": replicas(2)}, "runPolicy": {"suspend": True}}),
        "train": train_job(
            podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"zone": "a"}}}],
            managedBy="kueue.x-k8s.io/multikueue",
        ),
        "volcano": volcano_job(),
        "volcano-plugins": volcano_job(
            plugins={"pytorch": ["--port=2222", "--wait-master-enabled=true"], "svc": ["--x"], "own": ["--y=z"]},
            tasks=[
                {"name": "master", "replicas": 1, "template": template()},
                {"name": "worker", "replicas": 2, "template": template()},
            ],
        ),
        "volcano-template": job("JobTemplate", volcano_job()["spec"], version="flow.volcano.sh/v1alpha1"),
        "volcano-cron": job(
            "CronJob",
            {
                "schedule": "*/5 * * * *",
                "timeZone": "Europe/Berlin",
                "concurrencyPolicy": "Forbid",
                "suspend": False,
                "startingDeadlineSeconds": 60,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {"labels": {"a": "b"}, "name": "x"}, "spec": volcano_job()["spec"]},
            },
            version="batch.volcano.sh/v1alpha1",
        ),
    }


def convert(*values: Value, queue: str = "default") -> list[Converted | Refused]:
    """What comes of documents of one file."""
    text = "\n---\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    return list(convert_files({"jobs.yaml": text}, queue=queue))


@pytest.fixture(name="converted")
def _converted() -> Callable[..., Converted]:
    """The TrainingJob of the one document that is given."""

    def one(*values: Value) -> Converted:
        (result,) = convert(*values)
        assert isinstance(result, Converted), str(result)
        return result

    return one


@pytest.fixture(name="refusal")
def _refusal() -> Callable[..., str]:
    """Why the one document that is given is refused."""

    def one(*values: Value) -> str:
        (result,) = convert(*values)
        assert isinstance(result, Refused)
        return str(result)

    return one


@pytest.fixture(name="make", scope="session")
def _make() -> SimpleNamespace:
    """The builders of this file."""
    return SimpleNamespace(
        convert=convert,
        every_kind=every_kind,
        job=job,
        pytorch=pytorch,
        replicas=replicas,
        template=template,
        train_job=train_job,
        volcano_job=volcano_job,
    )
