# SPDX-License-Identifier: Apache-2.0
"""The doctor names what a cluster lacks, with remedies that help, and says so when all is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from apiserver.faults import FaultyProxy, Refuse
from apiserver.server import ApiServer
from kfp_volcano.cli import main
from kfp_volcano.volcano.cluster.kubernetes import cluster
from kfp_volcano.volcano.cluster.kubernetes.api import Patience

pytestmark = pytest.mark.cluster

MARKS = {"ok", "missing", "-"}


def doctor(kubeconfig: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--kubeconfig", str(kubeconfig), *options])


def lines(result: Result) -> dict[str, str]:
    """What was found, by what was looked for."""
    return {line[9:23].strip(): line for line in result.stdout.splitlines() if line[:8].strip() in MARKS}


@pytest.fixture(name="administrator")
def _administrator(apiserver: ApiServer) -> Path:
    return apiserver.kubeconfig("doctor", "system:masters")


@pytest.fixture(name="hasty")
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a server that does not answer."""
    monkeypatch.setattr(cluster, "Patience", lambda: Patience(total_s=0.0))


@pytest.fixture(name="volcano")
def _volcano(apiserver: ApiServer, namespace: str) -> Iterator[ApiServer]:
    """What shows from outside that Volcano runs: its Deployments, an open queue, and who refuses bad Jobs."""
    admin, made = apiserver.admin, []

    def create(version: str, kind: str, name: str = namespace, **content: Any) -> None:
        metadata = {"name": name, "namespace": namespace, **content.pop("metadata", {})}
        made.append(admin.create({"apiVersion": version, "kind": kind, "metadata": metadata, **content}).expect())

    def report(path: str, **status: Any) -> None:
        merge = "application/merge-patch+json"
        admin.request("PATCH", f"{path}/status", {"status": status}, content_type=merge).expect()

    for part in ("controller", "scheduler", "admission"):
        labels = {"app": f"volcano-{part}"}
        image = f"docker.io/volcanosh/vc-{part}:v1.15.1"
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
        spec = {"selector": {"matchLabels": labels}, "template": pod}
        create("apps/v1", "Deployment", f"volcano-{part}", metadata={"labels": labels}, spec=spec)
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/volcano-{part}"
        report(path, replicas=1, readyReplicas=1)
    create("scheduling.volcano.sh/v1beta1", "Queue", spec={})
    report(f"/apis/scheduling.volcano.sh/v1beta1/queues/{namespace}", state="Open")
    create("v1", "Node")
    report(f"/api/v1/nodes/{namespace}", capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "8"})
    create("scheduling.k8s.io/v1", "PriorityClass", value=10)
    create("scheduling.k8s.io/v1", "PriorityClass", f"{namespace}-surplus", value=5)
    rule = {"apiGroups": ["batch.volcano.sh"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobs"]}
    check = {"expression": "object.spec.queue != 'kfp-volcano-doctor'", "message": "no such queue"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [check]}
    create("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", spec=policy)
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    create("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", spec=binding)
    yield apiserver
    for each in made:
        admin.delete(each["apiVersion"], each["kind"], each["metadata"]["name"], namespace).expect()


def test_what_does_not_run_is_named(administrator: Path) -> None:
    """CRDs alone are no Volcano: no queue is open, and nobody checks Jobs. Each has a remedy."""
    result = doctor(administrator)
    found = lines(result)
    assert result.exit_code == 2
    assert found["volcano's CRDs"].startswith("ok")
    assert "takes a Job for a queue that is not there  ->  install volcano-admission" in found["admission"]


def test_all_is_there(volcano: ApiServer, administrator: Path) -> None:
    """Where nothing is missing, that is said, and the exit code is 0; it is safe to ask again and again."""
    asked = lambda: doctor(administrator, "--namespace", "default")  # noqa: E731  # asked until the policy is in force
    volcano.apiserver.wait_until(lambda: "checks Jobs" in asked().stdout, timeout_s=60.0)
    result = asked()
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip().endswith("\nall is there")
    assert "v1.15.1" in lines(result)["volcano"]


def test_missing_crds_are_named(proxy: FaultyProxy, tmp_path: Path) -> None:
    """Which kinds are not served, and the command that installs them; what depends on them is not asked."""
    proxy.plan(*[Refuse(404)] * 9, when=lambda seen: "volcano.sh" in seen.path and "review" not in seen.path)
    result = doctor(proxy.kubeconfig(tmp_path))
    found = lines(result)
    assert result.exit_code == 2
    assert "no jobs.batch.volcano.sh, podgroups.scheduling.volcano.sh" in found["volcano's CRDs"]
    assert "kubectl apply -f https://" in found["volcano's CRDs"]
    assert "queues" not in found


def test_a_webhook_that_fails_is_named(proxy: FaultyProxy, tmp_path: Path, hasty: None) -> None:
    """Volcano's admission is there, but does not answer the API server."""
    proxy.plan(*[Refuse(500, "failed calling webhook")] * 99, when=lambda seen: "dryRun" in seen.path)
    found = lines(doctor(proxy.kubeconfig(tmp_path)))
    assert "its webhook fails" in found["admission"]
    assert "failed calling webhook" in found["admission"]


def test_the_rules_that_are_told_are_enough(apiserver: ApiServer, administrator: Path, namespace: str) -> None:
    """A service account that may do nothing may do all that is needed once it has just the rules that were named."""
    apiserver.create_service_account("runner", namespace)
    options = ("--namespace", namespace, "--service-account", "runner")
    before = doctor(administrator, *options)
    assert before.exit_code == 2
    assert "missing" in lines(before)["permissions"]
    told = re.findall(r"^    (ClusterRole|Role in \S+): - (\{.*?\})  # \w", before.stdout, re.MULTILINE)
    subject = {"kind": "ServiceAccount", "name": "runner", "namespace": namespace}
    for kind, place in (("Role", namespace), ("ClusterRole", "")):
        metadata = {"name": namespace, **({"namespace": place} if place else {})}
        rules = [yaml.safe_load(rule) for where, rule in told if where.split()[0] == kind]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": namespace}
        common = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
        apiserver.admin.create({**common, "kind": kind, "rules": rules}).expect()
        binding = {**common, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]}
        apiserver.admin.create(binding).expect()
    apiserver.apiserver.wait_until(
        lambda: lines(doctor(administrator, *options))["permissions"].startswith("ok"), timeout_s=30.0
    )
    after = lines(doctor(administrator, *options))
    assert after["may look at"].startswith("ok")


def test_who_may_look_at_little_is_told_what_cannot_be_seen(apiserver: ApiServer, namespace: str) -> None:
    """A user without permissions learns what to ask for, and gets no traceback."""
    apiserver.create_service_account("visitor", namespace)
    result = doctor(apiserver.token_kubeconfig("visitor", namespace), "--namespace", namespace)
    assert result.exit_code == 2
    assert "not visible" in lines(result)["queues"]
    assert "Role in" in result.stdout


def test_a_cluster_that_is_not_there_is_exit_code_3(ill: FaultyProxy, tmp_path: Path, hasty: None) -> None:
    """Nothing answers: that is told, and nothing else can be."""
    ill.plan(*[Refuse(503, "away")] * 99)
    result = doctor(ill.kubeconfig(tmp_path))
    assert result.exit_code == 3
    assert "503" in result.stderr


def test_a_namespace_that_is_not_there_is_named(administrator: Path) -> None:
    """With the command that makes it; and the rest is looked at all the same."""
    result = doctor(administrator, "--namespace", "nowhere", "--service-account", "somebody")
    assert result.exit_code == 2
    found = lines(result)
    assert found["namespace"].startswith("missing")
    assert "kubectl create namespace nowhere" in found["namespace"]
    assert "permissions" in found


def test_a_service_account_that_is_not_there_is_named(administrator: Path, namespace: str) -> None:
    """Its permissions would be those of nobody."""
    result = doctor(administrator, "--namespace", namespace, "--service-account", "nobody")
    assert result.exit_code == 2
    assert f"kubectl -n {namespace} create serviceaccount nobody" in lines(result)["account"]
