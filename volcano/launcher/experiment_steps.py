# SPDX-License-Identifier: Apache-2.0
"""The bodies of an experiment's steps: one training of a group with a seed, and the comparison of all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import JobFailedError
from kfp_volcano.platform_files import resource_profiles
from kfp_volcano.schemas import template
from kfp_volcano.schemas.names import ENV_OUT
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.collect import gather
from kfp_volcano.volcano.launcher.experiment import Trial, compared, trial
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import effective_run_id
from kfp_volcano.volcano.launcher.step_pod import in_own_namespace
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, job_began, recorded, say
from kfp_volcano.volcano.launcher.steps import PATIENCE_S, conclude_step, create_job
from kfp_volcano.volcano.launcher.termination import ended_with_its_run
from kfp_volcano.volcano.manifests.devices import whole_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.volcano.launcher.experiment import Experiment

__all__ = ["SEED", "compare_step", "seeded", "trial_step"]

SEED = "{seed}"
"""What stands for a trial's seed in a spec's texts."""


def seeded(wire: Any, seed: int) -> Any:
    """A spec with its seed in place."""
    if isinstance(wire, str):
        return wire.replace(SEED, str(seed))
    if isinstance(wire, dict):
        return {key: seeded(value, seed) for key, value in wire.items()}
    return [seeded(value, seed) for value in wire] if isinstance(wire, list) else wire


def trial_step(
    *, specs: str, values: str, group: str, seed: int, metric: str, folder: str, volume: str, run_id: str
) -> str:
    """Train one group with one seed to its end; returns the `Trial` as JSON.

    A training that fails is a trial that does not count, and ends neither the others nor the comparison.
    """
    with failing_cleanly(f"trial {group}, seed {seed}"):
        cluster, run = connect(patience_s=PATIENCE_S), effective_run_id(run_id)
        wire = seeded(template.fill(specs, values)[group], seed)
        wire["metadata"]["name"] += f"-{group}-{seed}"
        wire = in_own_namespace(wire, cluster.own_pod())
        job = training_job(wire, source=f"the TrainingJob of group {group}", profiles=resource_profiles())
        ref = create_job(
            cluster, job, run_id=run_id, part=(group, str(seed)), folder=folder, volume=volume, followed=True
        )
        message = ""
        try:
            with recorded(cluster, ref, "train-1"), ended_with_its_run(connect, ref, cluster.own_pod()):
                holder = f"train-1:{run}"
                follow(cluster, ref, holder=holder, heir=f"run:{run}", last=True, clock=time.time, say=say)
        except JobFailedError as error:
            message = str(error).splitlines()[0]
            say(f"group {group}, seed {seed}: {error}")
        manifest = ref.read(cluster)
        result = gather(cluster, manifest, started_at=job_began(manifest), ended_at=time.time())
        conclude_step(job=str(ref))
        return trial(group, seed, result, metric=metric, gpus=whole_gpus(job.workers.resources), message=message).dump()


def compare_step(
    *,
    trials: Sequence[str | Mapping[str, Any]],
    groups: Sequence[str],
    metric: str,
    mode: str,
    budget: str,
    page: str,
    summary: str,
) -> Experiment:
    """Compare the trials; writes the page and the few lines that say it, on this machine also beside the reports."""
    # The charts' library takes long to import, and no other step draws.
    from kfp_volcano.volcano.launcher.experiment_told import markdown, told  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.experiment_told import page as drawn  # noqa: PLC0415

    with failing_cleanly("compare"):
        # KFP's local runner gives back as an object what a step returned as JSON.
        texts = [each if isinstance(each, str) else json.dumps(each) for each in trials]
        found = compared([Trial.load(text) for text in texts], groups, metric=metric, mode=mode, budget=budget)
        for sentence in told(found):
            say(sentence)
        html, lines = drawn(found), markdown(found)
        places = {Path(page): html, Path(summary): lines}
        if kept := os.environ.get(ENV_OUT):
            places |= {Path(kept) / "comparison.html": html, Path(kept) / "comparison.md": lines}
        for path, text in places.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return found
