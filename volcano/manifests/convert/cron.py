# SPDX-License-Identifier: Apache-2.0
"""CronJob (batch.volcano.sh/v1alpha1) to the TrainingJob of the Job that it makes; the schedule is the pipeline's.

Source: volcano-sh/volcano (v1.15), staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go (CronJobSpec).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert import volcano
from kfp_volcano.volcano.manifests.convert.metadata import read_labels, read_metadata

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert"]

_RECURRING = "a recurring run of the job's pipeline"
_SCHEDULE = {
    "schedule": f"{_RECURRING}, with this cron expression",
    "timeZone": f"{_RECURRING}, whose schedule is in UTC",
    "concurrencyPolicy": f"{_RECURRING}: max_concurrency=1 forbids runs at the same time",
    "startingDeadlineSeconds": f"{_RECURRING}: no_catchup leaves out what was missed",
    "suspend": f"{_RECURRING} can be disabled",
    "successfulJobsHistoryLimit": "spec.faults.keepFor removes finished Jobs",
    "failedJobsHistoryLimit": "spec.faults.keepFor removes finished Jobs",
}


def convert(document: View) -> Job:
    """The TrainingJob of a CronJob's Jobs. Raises SpecError where it cannot be said."""
    metadata, spec = read_metadata(document), document.map("spec")
    template = spec.map("jobTemplate")
    labels, annotations, queue = read_labels(template.map("metadata"))
    for key in template.map("metadata").rest():
        template.map("metadata").lost(key, "the Job is called after the CronJob")
    for key, remedy in _SCHEDULE.items():
        spec.lost(key, "a TrainingJob is one job: it has no schedule", remedy)
    metadata = replace(
        metadata,
        labels={**metadata.labels, **labels},
        annotations={**metadata.annotations, **annotations},
        queue=queue or metadata.queue,
    )
    return volcano.convert_spec(template.map("spec"), metadata)
