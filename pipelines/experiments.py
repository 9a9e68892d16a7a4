# SPDX-License-Identifier: Apache-2.0
"""`compare_trainings`: groups of trainings in a pipeline, compared at an equal budget, seed by seed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from kfp import dsl

from kfp_volcano.components.experiment import compare_groups, run_trial
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.pipelines.given import joined_specs
from kfp_volcano.pipelines.segments import always_run, without_retry
from kfp_volcano.pipelines.volumes import Claim, mount
from kfp_volcano.schemas.changes import changed
from kfp_volcano.volcano.launcher.experiment import BUDGETS, MODES

__all__ = ["MOST_GROUPS", "compare_trainings"]

MOST_GROUPS = 6
"""As many as can be told apart in one picture."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")


def compare_trainings(
    spec: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int],
    metric: str = "accuracy",
    mode: str = "max",
    budget: str = "samples",
    parallel: int = 0,
    folder: Optional[str] = None,
    volume: Optional[Claim] = None,
) -> dsl.PipelineTask:
    """Lay out an experiment in the pipeline being defined: each group with each seed, then the comparison.

    All Jobs are submitted together; Volcano starts as many as the queue has room for, and the others wait. While a gang
    waits no elastic training grows: where that is what is compared, `parallel` leaves room in the queue.

    Args:
        spec: A TrainingJob. `{seed}` in its texts is the seed; values may be pipeline parameters.
        groups: By name, what of `spec` is different: `{"large": {"roles.worker.replicas": 8}}`. The first group is
            what the others are compared with.
        seeds: At least two, for differences to have an interval.
        metric: What the training code logs: `training.log(accuracy=...)`.
        mode: `max` where more of it is better, `min` where less is.
        budget: What is equal for all: `samples` or `gpu-hours`. The metric is read where the training that used
            least of it ended.
        parallel: So many Jobs are there at a time; 0: all.
        folder: Where the command runs on the embedded cluster.
        volume: As for `elastic_training`.

    Returns:
        The task of the comparison: its outputs are `page`, `report` and `metrics`.

    Raises:
        SpecError: An argument or the spec of a group is wrong; lists every problem.
    """
    problems = [
        *(Problem(f"groups.{name}", "is no name", "a-z, 0-9 and -, at most 20") for name in groups
          if not _NAME.fullmatch(name)),
        *([] if 1 < len(groups) <= MOST_GROUPS else [Problem("groups", f"there are {len(groups)}", "two to six")]),
        *([] if seeds and len(set(seeds)) == len(seeds) else [Problem("seeds", "there are none, or one comes twice")]),
        *([] if mode in MODES else [Problem("mode", f"{mode!r} is unknown", " or ".join(MODES))]),
        *([] if parallel >= 0 else [Problem("parallel", f"is {parallel}", "a number of Jobs, or 0 for all")]),
        *([] if budget in BUDGETS else [Problem("budget", f"{budget!r} is unknown", " or ".join(BUDGETS))]),
    ]  # fmt: skip
    if problems:
        raise SpecError(problems, source="the experiment")
    read = joined_specs({name: changed(spec, changes) for name, changes in groups.items()}, folder, volume)
    trials = [{"group": name, "seed": str(seed)} for name in groups for seed in seeds]
    with dsl.ParallelFor(trials, name="trials", parallelism=parallel or None) as item:
        trial = without_retry(
            run_trial(
                **read._asdict(),
                group=item.group,
                seed=item.seed,
                metric=metric,
                run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            ),
            "trial",
        )
        if read.volume:
            mount(trial, read.volume)
    found = compare_groups(
        trials=dsl.Collected(trial.output), groups=list(groups), metric=metric, mode=mode, budget=budget
    )
    return always_run(found, "compare")
