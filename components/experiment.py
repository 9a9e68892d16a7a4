# SPDX-License-Identifier: Apache-2.0
"""The steps of an experiment: a training of each group with each seed, then the comparison."""

from typing import List

from kfp import dsl

from kfp_volcano.components.step import step

__all__ = ["compare_groups", "run_trial"]


@step()
def run_trial(
    specs: str,
    values: str,
    group: str,
    seed: str,
    metric: str,
    folder: str,
    volume: str,
    run_id: str,
) -> str:
    """Train one group with one seed to its end.

    Args:
        specs: The TrainingJobs by group, as JSON with holes (`kfp_volcano.schemas.template`).
        values: What fills the holes.
        group: Which group.
        seed: Which seed; a loop's items are texts.
        metric: What the training code logs, and the groups are compared by.
        folder: The folder the training command runs in on the embedded cluster.
        volume: The claim that this step mounts.
        run_id: The pipeline run's id.

    Returns:
        The trial as JSON (`volcano/launcher/experiment.py`).
    """
    from kfp_volcano.volcano.launcher.experiment_steps import trial_step

    return trial_step(
        specs=specs,
        values=values,
        group=group,
        seed=int(seed),
        metric=metric,
        folder=folder,
        volume=volume,
        run_id=run_id,
    )


@step()
def compare_groups(
    trials: List[str],
    groups: List[str],
    metric: str,
    mode: str,
    budget: str,
    page: dsl.Output[dsl.HTML],
    report: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Compare the groups with the first of them, at the largest budget that every training came to.

    Args:
        trials: What the trainings came to.
        groups: Their groups, in order.
        metric: What they are compared by.
        mode: `max` where more of it is better, `min` where less is.
        budget: `samples` or `gpu-hours`.
        page: Verdict, curves and table, one self-contained page.
        report: The same in a few lines.
        metrics: The mean of each group.
    """
    from kfp_volcano.volcano.launcher.experiment_steps import compare_step

    found = compare_step(
        trials=trials, groups=groups, metric=metric, mode=mode, budget=budget, page=page.path, summary=report.path
    )
    for group, measure in found.measures[metric].items():
        if measure.mean is not None:
            metrics.log_metric(f"{group}_{metric}", measure.mean)
