# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError, NotFoundError
from kfp_volcano.volcano.launcher.doctor import Finding
from kfp_volcano.volcano.launcher.kfp_doctor import examine_kfp

PARTS = ("ml-pipeline", "ml-pipeline-persistenceagent", "ml-pipeline-scheduledworkflow", "workflow-controller")
STOCK = """
spec:
  ttlStrategy: {secondsAfterCompletion: 3600}
  templateDefaults:
    retryStrategy: {limit: '2', retryPolicy: OnError}
"""


class Installed:
    """A namespace with KFP in it: what the doctor reads of a cluster."""

    def __init__(self, defaults: str | None = STOCK, zone: str = "UTC", idle: str = "") -> None:
        env = [{"name": "CRON_SCHEDULE_TIMEZONE", "valueFrom": {"configMapKeyRef": {"name": "install", "key": "zone"}}}]
        self.objects: dict[tuple[str, str], Any] = {
            ("ConfigMap", "workflow-controller-configmap"): {
                "data": {"workflowDefaults": defaults} if defaults else {}
            },
            ("ConfigMap", "install"): {"data": {"zone": zone}},
        }
        for name in PARTS:
            self.objects["Deployment", name] = {
                "metadata": {"name": name, "namespace": "kubeflow"},
                "spec": {"template": {"spec": {"containers": [{"env": env}]}}},
                "status": {} if name == idle else {"readyReplicas": 1},
            }

    def get(self, kind: str, name: str, namespace: str) -> Any:
        """As `Cluster.get`."""
        if namespace != "kubeflow":
            raise NotFoundError(f"{kind} {namespace}/{name}")
        return self.objects[kind, name]


def found(installed: Any, what: str, namespace: str = "kubeflow") -> Finding:
    """The finding of that name."""
    return {each.what: each for each in examine_kfp(installed, namespace)}[what]


def test_the_stock_configuration_is_what_trainings_want():
    """Everything is well, and what follows from it is told."""
    findings = {each.what: each for each in examine_kfp(Installed())}  # type: ignore[arg-type]
    assert all(each.ok for each in findings.values()), findings
    assert "3600 s" in findings["kfp keeps runs"].found


@pytest.mark.parametrize(
    ("defaults", "ok", "word"),
    [
        (STOCK, True, "whose pod is lost is tried again"),
        (STOCK.replace("OnError", "Always"), True, "for nothing"),
        (STOCK.replace("OnError", "OnFailure"), False, "fails the run"),
        (STOCK.replace(", retryPolicy: OnError", ""), False, "OnFailure"),
        (STOCK.replace("OnError", "Never"), False, "not known"),
        ("spec: {}", False, "fails its run"),
        (None, False, "fails its run"),
        ("{", False, "fails its run"),
        ("[]", False, "fails its run"),
    ],
)
def test_what_becomes_of_a_step_whose_pod_is_lost_is_told(defaults: str | None, word: str, *, ok: bool):
    """With the words to write into which ConfigMap, where it is not as it should be."""
    finding = found(Installed(defaults), "kfp retries")
    assert (finding.ok, word in finding.found) == (ok, True), finding
    assert ok or "retryPolicy: OnError" in finding.remedy


def test_another_time_zone_is_told_with_the_option_for_it():
    """Schedules are read in the zone that the administrator set."""
    assert "--backend-time-zone Europe/Berlin" in found(Installed(zone="Europe/Berlin"), "kfp time zone").found


def test_a_part_that_does_not_run_is_told():
    """Without its controller a schedule starts nothing."""
    finding = found(Installed(idle="ml-pipeline-scheduledworkflow"), "kfp parts")
    assert (finding.ok, finding.required) == (False, True)
    assert "ml-pipeline-scheduledworkflow not ready" in finding.found


def test_a_kfp_elsewhere_or_hidden_is_told_and_fails_nothing():
    """The doctor may not be allowed to look, or looks in the wrong namespace."""
    assert "--kfp-namespace" in found(Installed(), "kfp parts", "kfp").remedy

    class Hidden(Installed):
        def get(self, kind: str, name: str, namespace: str) -> Any:
            raise ForbiddenError(f"may not get {kind}")

    findings = list(examine_kfp(Hidden()))  # type: ignore[arg-type]
    assert {(each.ok, each.required) for each in findings} == {(False, False)}
