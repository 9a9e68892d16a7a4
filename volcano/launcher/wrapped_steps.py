# SPDX-License-Identifier: Apache-2.0
"""The bodies of the two steps around a KFP component that runs as the workers of a Job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.platform_files import resource_profiles
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.folder import training_job_of
from kfp_volcano.volcano.launcher.reference import JobRef, effective_run_id
from kfp_volcano.volcano.launcher.step_pod import in_own_namespace
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, recorded, say
from kfp_volcano.volcano.launcher.steps import create_job
from kfp_volcano.volcano.launcher.submit import training_name
from kfp_volcano.volcano.launcher.wrapped import collect_outputs, lay_down, worker_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["collect_component", "submit_component"]


def submit_component(
    component: Mapping[str, Any],
    inputs: Mapping[str, Any],
    paths: Mapping[tuple[str, int], Path],
    *,
    run_id: str,
    part: Sequence[str],
    folder: str,
) -> str:
    """Create the Job whose workers run the component; returns namespace/name.

    Args:
        component: `spec`, a TrainingJob without a command; `command`; and `outputs` (`wrapped.worker_command`).
        inputs: The inputs, as in KFP's `ExecutorInput`.
        paths: From an input artifact's name and its number in a list to its files here.
        run_id: The pipeline run's id.
        part: What tells this training from the run's others.
        folder: The folder the command runs in on the embedded cluster.
    """
    with failing_cleanly("submit"):
        cluster = connect()
        spec = in_own_namespace(component["spec"], cluster.own_pod())
        name = training_name(spec["metadata"]["name"], effective_run_id(run_id), part)
        profiles = resource_profiles()
        command = worker_command(component, inputs, job=name, volume="checkpoint" in spec["spec"])
        job = training_job(
            {**spec, "spec": {**spec["spec"], "command": command}}, source="the component's Job", profiles=profiles
        )
        if job.checkpoint is not None:
            lay_down(cluster.volume(job.namespace, job.checkpoint.volume), job, name, paths)
        volume = job.checkpoint.volume if job.checkpoint else ""
        return str(create_job(cluster, job, run_id=run_id, part=part, folder=folder, volume=volume))


def collect_component(job: str, outputs: Mapping[str, Any], path_of: Callable[[str], Path]) -> dict[str, Any]:
    """Carry the first worker's outputs to where KFP expects them; returns the step's `ExecutorOutput`.

    Args:
        job: The Job as namespace/name.
        outputs: The outputs, as in KFP's `ExecutorInput`.
        path_of: From an artifact's URI to where KFP expects its files in this step.
    """
    with failing_cleanly("collect"):
        cluster, ref = connect(), JobRef.parse(job)
        with recorded(cluster, ref, "collect"):
            told = collect_outputs(_volume(cluster, ref.read(cluster)), ref.name, outputs, path_of)
            say(f"outputs: {', '.join([*outputs.get('parameters', {}), *outputs.get('artifacts', {})]) or 'none'}")
            return told


def _volume(cluster: Cluster, job: Manifest) -> Path | None:
    spec = training_job_of(job)
    return cluster.volume(spec.namespace, spec.checkpoint.volume) if spec and spec.checkpoint else None
