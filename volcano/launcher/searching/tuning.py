# SPDX-License-Identifier: Apache-2.0
"""Trials in Ray Tune: the only module that knows it. Needs the extra `tune`.

Tune draws the values, keeps so many trials under way and gives up the bad ones (ASHA: L. Li et al., "A System for
Massively Parallel Hyperparameter Tuning", MLSys 2020); Volcano decides when a trial's Job starts.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import KfpVolcanoError, MissingExtraError
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.searching.record import Found
from kfp_volcano.volcano.launcher.searching.trial import TrialJob

try:
    import numpy as np
    from ray import cloudpickle, tune
    from ray.tune import Callback, Trainable
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.basic_variant import BasicVariantGenerator
    from ray.tune.search.variant_generator import generate_variants
except ImportError as error:
    raise MissingExtraError("ray[tune]", "tune") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.launcher.searching.space import Dimension

__all__ = ["Trial", "Work", "drawn", "run"]

_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interruption is whoever's who called
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # who waits in the queue has no metric yet
    "TUNE_MAX_PENDING_TRIALS_PG": "1024",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
_SHARE = 0.01
"""Of a processor, which Tune wants to be told of: a trial only waits, its Job is what trains."""
_LOOK_S = 2.0
"""How often a trial looks at its Job's progress, which is written every 5 s."""
_GRACE, _REDUCTION = 10, 3
"""ASHA looks at a trial after 10, 30 and 90 % of its steps, and keeps the best third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is to be tried."""

    number: int
    values: dict[str, Any]
    job: TrainingJob
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all trials have in common."""

    trials: tuple[Trial, ...]
    metric: str
    mode: str
    folder: str
    """Where the command runs on the embedded cluster."""
    environment: Mapping[str, str]
    """What leads to the cluster: Ray starts the trials' processes, and they know only what it knew when it began."""
    logs: Path
    """Where what a Job prints goes, a file a trial."""


def drawn(dimensions: Sequence[Dimension], *, count: int | None, seed: int) -> list[dict[str, Any]]:
    """The trials' values: so many drawn at random, the same for the same seed; without a count the whole grid."""
    space = {
        each.path: (tune.choice if count else tune.grid_search)(list(each.values))
        if each.kind == "choice"
        else getattr(tune, each.kind)(*each.values)
        for each in dimensions
    }
    source = np.random.RandomState(seed)
    found = [
        spec["config"]
        for _ in range(count or 1)
        for _, spec in generate_variants({"config": space}, random_state=source)
    ]
    return [
        {path: value.item() if isinstance(value, np.generic) else value for path, value in each.items()}
        for each in found
    ]


def run(
    work: Work,
    *,
    parallel: int,
    prune: bool,
    scratch: Path,
    begun: Callable[[Trial], None],
    ended: Callable[[Found], None],
) -> None:
    """Run all trials to their ends. This process has a Ray.

    Args:
        work: The trials.
        parallel: How many Jobs are submitted at a time.
        prune: Whether bad trials are given up.
        scratch: A folder for Tune.
        begun: Is told of each trial that begins.
        ended: Is told how each trial ended.
    """
    os.environ.update(_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial that fails is told by `ended`
    trials = {each.number: each for each in work.trials}
    asha = ASHAScheduler(time_attr="percent", grace_period=_GRACE, reduction_factor=_REDUCTION, max_t=100)
    tune.run(
        tune.with_parameters(_Trial, work=work),
        config={"trial": tune.grid_search(list(trials))},
        resources_per_trial={"cpu": _SHARE},
        metric=work.metric,
        mode=work.mode,
        scheduler=asha if prune else None,
        search_alg=BasicVariantGenerator(max_concurrent=parallel),
        storage_path=str(scratch),
        name="tune",
        trial_dirname_creator=lambda trial: str(trial.trial_id),
        callbacks=[_Told(trials, work.metric, begun, ended)],
        verbose=0,
        raise_on_failed_trial=False,
    )


class _Trial(Trainable):  # type: ignore[misc]
    """A trial in a process of its own, which Tune starts, asks and stops."""

    def setup(self, config: dict[str, Any], work: Work) -> None:
        """Create the Job, or take up the one that this trial had before the search was interrupted."""
        os.environ.update(work.environment)
        trial = next(each for each in work.trials if each.number == config["trial"])
        self._metric = work.metric
        work.logs.mkdir(exist_ok=True)
        self._log = (work.logs / f"{trial.number}.log").open("a", encoding="utf-8", buffering=1)
        self._job = TrialJob(
            connect(),
            trial.job,
            run_id=trial.run_id,
            metric=work.metric,
            folder=work.folder,
            say=lambda line: print(line, file=self._log),
        )

    def step(self) -> dict[str, Any]:
        """Wait for news."""
        news = self._job.wait(_LOOK_S)
        known = {} if news.value is None else {self._metric: news.value}
        return {**known, "percent": news.percent, "ended": news.ended, "done": news.ended, "job": str(self._job.ref)}

    def cleanup(self) -> None:
        """Give the GPUs back at once."""
        if hasattr(self, "_job"):
            self._job.stop()


class _Told(Callback):  # type: ignore[misc]
    """Tells of each trial."""

    def __init__(
        self,
        trials: Mapping[int, Trial],
        metric: str,
        begun: Callable[[Trial], None],
        ended: Callable[[Found], None],
    ) -> None:
        self._trials, self._metric, self._begun, self._ended = trials, metric, begun, ended

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:  # noqa: ARG002 - Tune's
        """Its process has begun."""
        self._begun(self._trials[trial.config["trial"]])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:  # noqa: ARG002 - Tune's
        """It ended, or was given up."""
        self._ended(self._found(trial, state="ended" if trial.last_result.get("ended") else "pruned"))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:  # noqa: ARG002 - Tune's
        """It failed; the others go on."""
        self._ended(self._found(trial, state="failed", message=_reason(trial)))

    def _found(self, trial: Any, **how: Any) -> Found:
        known, last = self._trials[trial.config["trial"]], trial.last_result or {}
        return Found(
            trial=known.number,
            values=known.values,
            attempt=known.attempt,
            value=last.get(self._metric),
            percent=float(last.get("percent", 0.0)),
            job=last.get("job", ""),
            **how,
        )


def _reason(trial: Any) -> str:
    """What a trial's process raised, without the way there."""
    if trial.pickled_error_file:
        error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, KfpVolcanoError):
            return str(cause)
        return f"{type(cause).__name__}: {cause}"
    return Path(trial.error_file).read_text(encoding="utf-8").strip().splitlines()[-1] if trial.error_file else ""
