# SPDX-License-Identifier: Apache-2.0
"""A CronJob makes again and again what a submitted Job would be, under a name that nobody knows before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.cron import Cron
from kfp_volcano.schemas.names import ENV_JOB_NAME, INSTANCE_LABEL, OWNER, SPEC
from kfp_volcano.schemas.schedule import Every, Schedule
from kfp_volcano.schemas.training_job import TrainingJob
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.cron_job import LATE_S, SCHEDULE_STEP, cron_job
from kfp_volcano.volcano.manifests.job import job_manifest

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NIGHTLY = Schedule(name="nightly", when=Cron.parse("30 2 * * 1-5"), time_zone="Asia/Tokyo", work="")
NAME = "nightly-29412345"


def spec(name: str) -> TrainingJob:
    return training_job(yaml.safe_load((GOLDEN / f"{name}.spec.yaml").read_text(encoding="utf-8")))


SPECS = [
    path.name.removesuffix(".spec.yaml")
    for path in sorted(GOLDEN.glob("*.spec.yaml"))
    if "claims" not in path.name and "joint" not in path.read_text(encoding="utf-8")
]


def as_made(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The Job that Volcano makes of a CronJob, as its pods see it once Kubernetes has filled variables in."""
    template = json.loads(json.dumps(manifest["spec"]["jobTemplate"]).replace(f"$({ENV_JOB_NAME})", name))
    for task in template["spec"]["tasks"]:
        pod = task["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if container.get("env"):
                first = container["env"].pop(0)
                assert first["name"] == ENV_JOB_NAME
                assert first["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['volcano.sh/job-name']"
        task["template"]["metadata"]["labels"][INSTANCE_LABEL] = name
    template["metadata"]["labels"][INSTANCE_LABEL] = name
    return template


@pytest.mark.parametrize("name", SPECS)
def test_each_job_is_as_if_it_had_been_submitted(name: str) -> None:
    """All that depends on the Job's name follows it at run time; nothing of the example's is left."""
    job = spec(name)
    manifest = cron_job(job, NIGHTLY)
    assert "nightly-0000" not in json.dumps(manifest)
    size = job.workers.replicas.min if job.elastic else job.workers.replicas.max
    run_id = f"schedule:{job.namespace}/nightly"
    submitted = job_manifest(job, name=NAME, run_id=run_id, step=SCHEDULE_STEP, workers=size)
    made = as_made(manifest, NAME)
    assert made["spec"] == submitted["spec"]
    assert made["metadata"]["labels"] == submitted["metadata"]["labels"]
    assert made["metadata"]["annotations"] == submitted["metadata"]["annotations"]
    assert {OWNER, SPEC} <= set(made["metadata"]["annotations"])


@pytest.mark.parametrize("name", ["elastic", "mpi"])
def test_the_crd_takes_it(name: str, shared: Path) -> None:
    """Every field is one of Volcano's schema, which drops others in silence."""
    crd = yaml.safe_load((shared / "volcano" / "crds" / "batch.volcano.sh_cronjobs.yaml").read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = cron_job(spec(name), NIGHTLY)["spec"]
    assert set(found) <= set(schema["properties"])
    jsonschema.validate(found, schema)


def test_times_are_said_as_volcano_reads_them() -> None:
    """Five fields and a time zone, or @every; one at a time; late by minutes at most, unless it is to catch up."""
    job = spec("elastic")
    nightly = cron_job(job, NIGHTLY)["spec"]
    assert (nightly["schedule"], nightly["timeZone"]) == ("30 2 * * 1-5", "Asia/Tokyo")
    assert (nightly["concurrencyPolicy"], nightly["startingDeadlineSeconds"]) == ("Forbid", LATE_S)
    often = cron_job(job, replace(NIGHTLY, when=Every(5400), catch_up=True, enabled=False))["spec"]
    assert (often["schedule"], often["suspend"]) == ("@every 5400s", True)
    assert "startingDeadlineSeconds" not in often


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"when": Every(59)}, "at least a minute"),
        ({"when": Cron.parse("30 0 2 * * *")}, "five fields"),
        ({"name": "n" * 60}, "63"),
    ],
)
def test_what_volcano_cannot_keep_is_refused(change: dict[str, Any], what: str) -> None:
    """Jobs are called after their minute, and their pods after them."""
    with pytest.raises(SpecError, match=what):
        cron_job(spec("elastic"), replace(NIGHTLY, **change))


def test_claims_of_joint_devices_are_refused() -> None:
    """They are objects made for one Job by its name."""
    with pytest.raises(SpecError, match="claimed anew"):
        cron_job(spec("rdma-claims"), NIGHTLY)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Nightly Run"}, "lower-case"),
        ({"name": ""}, "lower-case"),
        ({"name": "nächtlich"}, "lower-case"),
        ({"time_zone": "Mars/Base"}, "no time zone"),
        ({"time_zone": "../etc/passwd"}, "no time zone"),
    ],
)
def test_names_and_zones_that_are_none_are_told_here(change: dict[str, Any], said: str) -> None:
    """In words that help, before the cluster is asked."""
    with pytest.raises(SpecError, match=said):
        cron_job(spec(SPECS[0]), replace(NIGHTLY, **change))
