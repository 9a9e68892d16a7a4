# SPDX-License-Identifier: Apache-2.0
"""The Volcano CronJob of a TrainingJob: for each time of its schedule Volcano makes the same Job under a new name.

What else is derived from a Job's name comes from there at run time: Volcano labels each pod with it, Kubernetes puts
the label into the container's environment, and that into all that refers to it as $(KFP_VOLCANO_JOB_NAME).

Source: volcano-sh/volcano (v1.15), pkg/controllers/cronjob/cronjob_controller_util.go (names, times) and
pkg/webhooks/admission/cronjobs/validate/admit_cronjob.go (what is admitted).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.schedule import Every
from kfp_volcano.schemas.time_zones import zone
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.pods import joint_devices
from kfp_volcano.volcano.manifests.present import present

if TYPE_CHECKING:
    from kfp_volcano.schemas.schedule import Schedule
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["LATE_S", "SCHEDULE_STEP", "cron_job", "example_job"]

LATE_S = 300
"""How late a Job may start where nothing is made up for, seconds: what was missed by more is left out."""
SCHEDULE_STEP = "schedule"
"""The step of the Jobs' owner record: no pipeline run made them."""
KEPT_SUCCEEDED, KEPT_FAILED = 3, 3

_EXAMPLE = "-00000000"
"""Volcano appends the minutes since 1970, eight digits until 2160."""
_NAME = f"$({names.ENV_JOB_NAME})"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LEAST_S = 60


def cron_job(job: TrainingJob, schedule: Schedule) -> dict[str, Any]:
    """The CronJob, in the namespace of the training; never two of its Jobs at a time.

    Raises SpecError where the times cannot be said to Volcano, or a Job of it cannot be made again and again.
    """
    problems = [*_name_problems(schedule.name), *_time_problems(schedule), *_job_problems(job)]
    if problems:
        raise SpecError(problems, source=f"schedule {schedule.name}")
    manifest = example_job(job, schedule.name)
    for task in manifest["spec"]["tasks"]:
        _name_at_run_time(task["template"]["spec"], manifest["metadata"]["name"])
        task["template"]["metadata"]["labels"][names.INSTANCE_LABEL] = schedule.name
    metadata = manifest["metadata"]
    labels = {**metadata["labels"], names.INSTANCE_LABEL: schedule.name}
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": "CronJob",
        "metadata": {"name": schedule.name, "namespace": job.namespace, "labels": labels},
        "spec": {
            "schedule": _times(schedule),
            "timeZone": schedule.time_zone,
            "concurrencyPolicy": "Forbid",
            "suspend": not schedule.enabled,
            **present(startingDeadlineSeconds=None if schedule.catch_up else LATE_S),
            "successfulJobsHistoryLimit": KEPT_SUCCEEDED,
            "failedJobsHistoryLimit": KEPT_FAILED,
            "jobTemplate": {
                "metadata": {"labels": labels, "annotations": metadata["annotations"]},
                "spec": manifest["spec"],
            },
        },
    }


def example_job(job: TrainingJob, schedule: str) -> dict[str, Any]:
    """A Job as the schedule makes them, under a name of the same length. Raises SpecError where that is too long.

    An elastic one starts with its gang, for what will be free is not known; the autoscaler adds what is.
    """
    replicas = job.workers.replicas
    workers = replicas.min if job.elastic else replicas.max
    run_id = f"schedule:{job.namespace}/{schedule}"
    return job_manifest(job, name=schedule + _EXAMPLE, run_id=run_id, step=SCHEDULE_STEP, workers=workers)


def _name_problems(name: str) -> list[Problem]:
    if _LABEL.fullmatch(name):
        return []
    return [Problem("name", f"{name!r} cannot be a schedule's", "lower-case letters, digits and -, e.g. nightly-2")]


def _time_problems(schedule: Schedule) -> list[Problem]:
    if isinstance(schedule.when, Every):
        short = schedule.when.seconds < _LEAST_S
        remedy = "at least a minute: Jobs are called after it"
        return [Problem("every", f"is {schedule.when.seconds} s", remedy)] if short else []
    try:
        zone(schedule.time_zone)
    except SpecError as error:
        return list(error.problems)
    return []


def _job_problems(job: TrainingJob) -> list[Problem]:
    remedy = "a schedule of KFP has them, or leave spec.placement.devices out"
    return [
        Problem(f"spec.roles.{role.name}", "its joint devices are claimed anew for each Job, by its name", remedy)
        for role in job.roles
        if (devices := joint_devices(job, role)) and devices.claimed
    ]


def _times(schedule: Schedule) -> str:
    return f"@every {schedule.when.seconds}s" if isinstance(schedule.when, Every) else schedule.when.five()


def _name_at_run_time(pod: dict[str, Any], example: str) -> None:
    """Have the containers of a pod take the Job's name from Volcano's label wherever the example's stands."""
    label = {"fieldRef": {"fieldPath": "metadata.labels['volcano.sh/job-name']"}}
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for each in container.get("env", ()):
            if "value" in each:
                each["value"] = each["value"].replace(example, _NAME)
        for part in ("command", "args"):
            if part in container:
                container[part] = [word.replace(example, _NAME) for word in container[part]]
        if "env" in container:
            # First, for Kubernetes knows of a variable only what stands before it.
            container["env"] = [{"name": names.ENV_JOB_NAME, "valueFrom": label}, *container["env"]]
