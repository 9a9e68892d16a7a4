# SPDX-License-Identifier: Apache-2.0
"""`deploy/` is whole, and grants each part what the code says that it needs, in the same words."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_volcano.cli import main
from kfp_volcano.components.image import STEP_IMAGE
from kfp_volcano.elastic.autoscaler.policy_file import read_policies
from kfp_volcano.schemas.names import COORDINATOR, MANAGED_LABEL, MANAGER, SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.launcher import permissions
from kfp_volcano.volcano.launcher.permissions import Need
from kustomized import CLUSTER_SCOPED, build, listed

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDERS = sorted(file.parent for file in DEPLOY.rglob("kustomization.yaml"))
COORDINATOR_NEEDS = permissions.COORDINATOR
PARTS = {"namespace", "network"}
"""Components, which have no place of their own."""
APPLIED = [folder for folder in FOLDERS if folder.name not in PARTS]


def named(folder: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in build(DEPLOY / folder) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_is_in_its_kustomization(folder: Path) -> None:
    """None is forgotten, none is missing."""
    there = {*folder.glob("*.yaml"), *folder.glob("*.json")}
    assert listed(folder) == there - {folder / "kustomization.yaml"}


@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
def test_each_object_has_its_place(folder: Path) -> None:
    """What is namespaced says where it goes, and nothing is there twice."""
    found = build(folder)
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
    assert len(keys) == len(set(keys))
    assert all(bool(namespace) is (kind not in CLUSTER_SCOPED) for kind, namespace, _ in keys)


@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
def test_kubectl_builds_the_same(folder: Path) -> None:
    """The kustomization is one to kustomize itself."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is absent")
    built = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    by_name = lambda each: (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])  # noqa: E731
    assert sorted(yaml.safe_load_all(built.stdout), key=by_name) == sorted(build(folder), key=by_name)


def granted(file: str, kind: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The rules of a role, each with the comment above it."""
    documents = (DEPLOY / "base" / file).read_text(encoding="utf-8").split("\n---\n")
    (text,) = [
        text
        for text in documents
        if (content := yaml.safe_load(text))["kind"] == kind and content["metadata"]["name"] == name
    ]
    told = re.findall(r"^  # (.*)\n  - (\{.*\})$", text, re.MULTILINE)
    assert len(told) == len(yaml.safe_load(text)["rules"]), "a rule without its reason"
    return [(why, yaml.safe_load(rule)) for why, rule in told]


def wanted(needs: tuple[Need, ...], where: str) -> list[tuple[str, dict[str, Any]]]:
    """The same, of what the code says."""
    found = []
    for need in needs:
        if need.where == where:
            kind = KINDS[need.kind]
            resource = f"{kind.plural}/{need.subresource}" if need.subresource else kind.plural
            group = kind.api_version.rpartition("/")[0]
            found.append((need.why, {"apiGroups": [group], "resources": [resource], "verbs": list(need.verbs)}))
    return found


@pytest.mark.parametrize(
    ("file", "kind", "name", "needs", "where"),
    [
        ("steps.yaml", "ClusterRole", "kfp-volcano-steps", permissions.STEPS, "namespace"),
        ("steps.yaml", "ClusterRole", "kfp-volcano-steps-everywhere", permissions.STEPS, "everywhere"),
        ("coordinator.yaml", "ClusterRole", "kfp-volcano-coordinator", permissions.COORDINATOR, "namespace"),
        (
            "coordinator.yaml",
            "ClusterRole",
            "kfp-volcano-coordinator-everywhere",
            permissions.COORDINATOR,
            "everywhere",
        ),
        ("coordinator.yaml", "Role", "kfp-volcano-coordinator", permissions.COORDINATOR, "system"),
        ("autoscaler.yaml", "ClusterRole", "kfp-volcano-autoscaler", permissions.AUTOSCALER, "everywhere"),
        ("reaper.yaml", "ClusterRole", "kfp-volcano-reaper", permissions.REAPER, "everywhere"),
        ("reaper.yaml", "ClusterRole", "kfp-volcano-reaper-leftovers", permissions.REAPER, "namespace"),
    ],
)
def test_each_role_grants_what_the_code_needs(
    file: str, kind: str, name: str, needs: tuple[Need, ...], where: str
) -> None:
    """Neither more nor less, each with the reason that the code gives."""
    assert granted(file, kind, name) == wanted(needs, where)


def test_no_role_grants_a_wildcard_or_a_secret() -> None:
    """Nothing in `deploy/` reads secrets, or may do whatever there is."""
    for each in build(DEPLOY / "base"):
        for rule in each.get("rules", []):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert "secrets" not in rule["resources"]


def test_a_profile_is_bound_as_kubeflow_is() -> None:
    """Two folders, the same bindings, but for names, and for what a profile's editor has by aggregation."""
    text = (DEPLOY / "kubeflow" / "everywhere.yaml").read_text(encoding="utf-8")
    renamed = text.replace("pipeline-runner", "default-editor").replace("kubeflow", "vision")
    assert renamed == (DEPLOY / "profile" / "everywhere.yaml").read_text(encoding="utf-8")
    label = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"
    assert named("base", "ClusterRole", "kfp-volcano-steps")["metadata"]["labels"][label] == "true"


def test_the_reaper_runs_as_the_command_line_has_it() -> None:
    """Its command parses, in the image of the steps, in the namespace that the code knows, with a closed pod."""
    job = named("base", "CronJob", "kfp-volcano-reaper")
    assert job["metadata"]["namespace"] == SYSTEM_NAMESPACE
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == STEP_IMAGE
    program, command, *options = container["command"]
    assert program == "kfp-volcano"
    main.commands[command].make_context(command, options)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True


def autoscaler_pods() -> dict[str, tuple[dict[str, Any], list[str]]]:
    """The pod of each way to run the autoscaler, and the words of its command."""
    deployed = named("autoscaler", "Deployment", "kfp-volcano-autoscaler")["spec"]["template"]
    (container,) = deployed["spec"]["containers"]
    ray = named("kuberay", "RayCluster", "kfp-volcano-autoscaler")["spec"]["headGroupSpec"]["template"]
    (head,) = ray["spec"]["containers"]
    script = head["args"][0].replace("\\\n", " ")
    (line,) = [line for line in script.splitlines() if line.startswith("exec kfp-volcano")]
    return {"autoscaler": (deployed, container["command"] + container["args"]), "kuberay": (ray, shlex.split(line)[1:])}


@pytest.mark.parametrize("folder", ["autoscaler", "kuberay"])
def test_the_autoscaler_runs_as_the_command_line_has_it(folder: str) -> None:
    """Its command parses; what it names is mounted; probes, Service and policy find its port; the pod is closed."""
    pod, (program, group, command, *options) = autoscaler_pods()[folder]
    (container,) = pod["spec"]["containers"]
    assert (program, group, command) == ("kfp-volcano", "autoscaler", "run")
    told = main.commands[group].commands[command].make_context(command, options).params
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {str(told["policies"]), str(told["decisions"]), "/tmp", "/dev/shm"} == mounted
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["metrics"] == told["port"] == int(pod["metadata"]["annotations"]["prometheus.io/port"])
    assert {container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "liveness", "readiness")} == {
        "metrics"
    }
    assert container["image"] == STEP_IMAGE
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["serviceAccountName"] == "kfp-volcano-autoscaler"
    labels = pod["metadata"]["labels"].items()
    policy = named(folder, "NetworkPolicy", "kfp-volcano-autoscaler")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": told["port"]}]
    service = named(folder, "Service", "kfp-volcano-autoscaler")
    assert service["spec"]["selector"].items() <= labels
    monitor = named("monitoring", "ServiceMonitor", "kfp-volcano-autoscaler")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_the_policies_that_come_with_it_are_valid(tmp_path: Path) -> None:
    """Each file of the ConfigMap."""
    data = named("autoscaler", "ConfigMap", "kfp-volcano-policies")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert [each.name for each in read_policies(tmp_path).each] == ["default"]


def test_ray_is_of_the_version_in_the_image() -> None:
    """KubeRay wants to know it."""
    pinned = re.search(r"^ray==(\S+)$", (DEPLOY.parent / "constraints.txt").read_text(), re.MULTILINE)
    assert named("kuberay", "RayCluster", "kfp-volcano-autoscaler")["spec"]["rayVersion"] == pinned[1]


def test_network_policies_find_our_pods() -> None:
    """They select by labels that the Job's pods have."""
    for policy in build(DEPLOY / "network"):
        labels = policy["spec"]["podSelector"]["matchLabels"]
        assert labels[MANAGED_LABEL] == MANAGER
        assert labels.get("app.kubernetes.io/component", COORDINATOR) == COORDINATOR
