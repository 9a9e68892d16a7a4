# SPDX-License-Identifier: Apache-2.0
"""Pod templates: what a TrainingJob has a word for is said with it, the rest goes to podPatch."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest


@pytest.fixture(name="spec")
def _spec(make: Any, converted: Any) -> Any:
    return converted(make.every_kind()["jax"]).spec


def rendered(spec: Any) -> Any:
    """The pod that the spec's workers have in Volcano's Job."""
    job = training_job(spec)
    manifest = job_manifest(job, name=job_name(job.name, "r"), run_id="r", step="s", workers=job.workers.replicas.min)
    return manifest["spec"]["tasks"][-1]["template"]["spec"]


def test_what_has_a_word_is_said_with_it(spec: Any) -> None:
    """Image, program, environment, volumes, identity, placement and resources."""
    found = spec["spec"]
    assert (found["image"], found["command"], found["args"]) == (
        "registry.example/train:1",
        ["python", "train.py"],
        ["--epochs", "3"],
    )
    assert found["env"]["TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert found["env"]["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert found["envFrom"] == [{"secretRef": {"name": "s3", "optional": True}, "prefix": "S_"}]
    assert found["volumes"]["data"] == {"claim": "imagenet", "mount": "/data", "subPath": "v2", "readOnly": True}
    assert found["volumes"]["conf"]["configMap"] == {"name": "conf", "items": {"a": "b"}, "mode": 256}
    assert found["pod"]["imagePullSecrets"] == ["registry"]
    assert found["placement"]["nodeSelector"] == {"pool": "gpu"}
    assert found["elasticity"]["grace"] == "2m"
    assert spec["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert found["roles"]["worker"]["resources"] == {
        "cpu": 8,
        "memory": "32Gi",
        "limits": {"cpu": 16, "memory": "32Gi"},
        "gpu": 2,
        "rdma": 1,
        "rdmaResource": "rdma/ib",
        "hugepages": {"2Mi": "1Gi"},
        "shm": "16Gi",
    }


def test_the_token_that_kubernetes_mounts_stays_mounted(spec: Any) -> None:
    """A TrainingJob mounts none where nothing is said; a job with a service account of its own had one."""
    assert spec["spec"]["pod"]["serviceAccount"] == "trainer"
    assert spec["spec"]["pod"]["token"] is True


def test_what_has_no_word_is_in_the_rendered_pod(spec: Any) -> None:
    """Sidecars, init containers, further mounts, other volumes, host network and probes."""
    pod = rendered(spec)
    training, sidecar = pod["containers"]
    assert (training["name"], sidecar["name"]) == ("worker", "log-agent")
    assert [container["name"] for container in pod["initContainers"]] == ["fetch"]
    assert pod["hostNetwork"] is True
    assert training["workingDir"] == "/app"
    assert training["livenessProbe"] == {"exec": {"command": ["ls"]}}
    mounts = {mount["mountPath"]: mount["name"] for mount in training["volumeMounts"]}
    assert mounts["/cache"] == "data"
    assert mounts["/share"] == "share"
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    assert sources["share"]["nfs"] == {"server": "10.0.0.1", "path": "/share"}
    assert sources["logs"]["emptyDir"] == {}


def test_a_variable_stays_behind_the_one_it_refers_to(spec: Any) -> None:
    """Kubernetes puts a variable's value into those after it only; a TrainingJob's are in the order of their names."""
    names = [variable["name"] for variable in rendered(spec)["containers"][0]["env"]]
    assert names.index("ADDRESS") > names.index("POD_IP")
    assert "my.dotted" in names


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"cpu": 4, "memory": "8Gi"}}, {"cpu": 4, "memory": "8Gi", "reserved": True}),
        (
            {"requests": {"cpu": "500m"}, "limits": {"memory": "8Gi"}},
            {"cpu": "500m", "memory": "8Gi", "limits": {"memory": "8Gi"}},
        ),
        ({"requests": {"amd.com/gpu": 1}}, {"extra": {"amd.com/gpu": 1}}),
        (
            {"limits": {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 8192, "volcano.sh/vgpu-cores": 50}},
            {"gpu": 2, "gpuShare": {"memory": "8192Mi", "cores": 50}},
        ),
        ({"limits": {"ephemeral-storage": "10Gi", "cpu": 0}}, {"extra": {"ephemeral-storage": "10Gi"}}),
    ],
)
def test_resources_keep_their_meaning(make: Any, converted: Any, resources: Any, expected: Any) -> None:
    """A limit without a request is the request; equal ones are reserved; devices are counted."""
    worker = make.replicas(1, resources=resources, volumeMounts=None)
    found = converted(make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": worker}})).spec["spec"]["roles"]["worker"]
    assert found["resources"] == expected


@pytest.mark.parametrize(
    ("field", "why"),
    [("nodeName", "not scheduled"), ("hostname", "names its pods"), ("flavour", "does not take this field")],
)
def test_what_cannot_be_is_told(make: Any, converted: Any, field: str, why: str) -> None:
    """A field that would break scheduling, or that no pod has, is lost, and the account says why."""
    worker = make.replicas(1)
    worker["template"]["spec"][field] = "x"
    result = converted(make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": worker}}))
    (entry,) = [entry for entry in result.entries if entry.path.endswith(f"template.spec.{field}")]
    assert entry.outcome == "lost"
    assert why in entry.why


def test_the_training_container_is_the_one_of_the_operators_name(make: Any, converted: Any) -> None:
    """Wherever it stands; the others are beside it."""
    worker = make.replicas(1, container="jax")
    worker["template"]["spec"]["containers"].reverse()
    found = converted(make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": worker}})).spec["spec"]
    assert found["image"] == "registry.example/train:1"


def test_a_container_without_an_image_is_refused(make: Any, refusal: Any) -> None:
    """There is nothing to run."""
    worker = make.replicas(1, image=None)
    assert "containers[0].image: is missing" in refusal(make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": worker}}))


def test_numa_alignment_by_annotation_is_placement(make: Any, converted: Any) -> None:
    """As users of Kubeflow's jobs ask Volcano for it."""
    template = make.template(resources={"limits": {"cpu": 4, "memory": "8Gi"}})
    template["metadata"]["annotations"]["volcano.sh/numa-topology-policy"] = "restricted"
    worker = {"replicas": 1, "template": template}
    spec = converted(make.job("TFJob", {"tfReplicaSpecs": {"Worker": worker}})).spec["spec"]
    assert spec["placement"]["numa"] == "restricted"
