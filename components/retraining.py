# SPDX-License-Identifier: Apache-2.0
"""The steps around a retraining: is there new data, take the model in, deploy it or not."""

from typing import NamedTuple

from kfp import dsl

from kfp_volcano.components.step import step

__all__ = ["check_data", "promote_model", "stage_model"]


class Staged(NamedTuple):
    candidate: str
    deployed: str
    evaluation: str
    against: str


@step()
def check_data(
    volume: str,
    data: str,
    models: str,
    force: bool,  # noqa: FBT001
    run_id: str,
    report: dsl.Output[dsl.Markdown],
) -> str:
    """Compare the data with what the last model was trained with.

    Args:
        volume: The claim; the step has to mount it.
        data: The folder of the data on it.
        models: The folder of the models on it.
        force: Train whether or not there is new data.
        run_id: The pipeline run's id; names the model's version.
        report: What is new.

    Returns:
        `train` if there is new data, else `keep`.
    """
    from kfp_volcano.volcano.launcher.retraining_steps import Places, check_step

    places = Places(volume=volume, data=data, models=models)
    return check_step(places, run_id=run_id, force=force, report=report.path)


@step()
def stage_model(volume: str, models: str, run_id: str, result: str) -> Staged:
    """Take a trained model in among the versions.

    Args:
        volume: The claim; the step has to mount it.
        models: The folder of the models on it.
        run_id: The pipeline run's id; names the version.
        result: What the training came to, its output `Output`; it names the Job, whose model is on the claim.

    Returns:
        Where the evaluation finds this model and the one deployed, where it leaves its result, and what is deployed.
    """
    from dataclasses import astuple

    from kfp_volcano.volcano.launcher.retraining_steps import Places, stage_step

    places = Places(volume=volume, models=models)
    return Staged(*astuple(stage_step(places, run_id=run_id, result=result)))


@step()
def promote_model(
    volume: str,
    models: str,
    against: str,
    least_gain: float,
    keep: int,
    run_id: str,
    result: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.Markdown],
) -> str:
    """Deploy the version if the evaluation found it better, else keep the one that is deployed.

    Args:
        volume: The claim; the step has to mount it.
        models: The folder of the models on it.
        against: The version that it was compared with.
        least_gain: By how much it has to be better.
        keep: How many versions stay.
        run_id: The pipeline run's id; names the version.
        result: As for `stage_model`; the training's folder is removed.
        metrics: The candidate's and the deployed model's.
        report: What was decided, and why.

    Returns:
        `promoted` or `kept`.
    """
    from kfp_volcano.volcano.launcher.retraining_steps import Places, promote_step

    verdict = promote_step(
        Places(volume=volume, models=models),
        run_id=run_id,
        against=against,
        least_gain=least_gain,
        keep=keep,
        result=result,
        report=report.path,
    )
    metrics.log_metric(f"candidate_{verdict.metric}", verdict.candidate)
    if verdict.deployed is not None:
        metrics.log_metric(f"deployed_{verdict.metric}", verdict.deployed)
    return "promoted" if verdict.promoted else "kept"
