# SPDX-License-Identifier: Apache-2.0
"""What the optimizer learns at: base values from the training code, times what the rule says of the present batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from kfp_volcano.elastic.runtime.schedule import Schedule
from kfp_volcano.elastic.scaling import Factors, Ramp, Situation, Sizing, bias_ratio, misfits, named, scaled_beta
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.optim import Optimizer

    from kfp_volcano.elastic.scaling import Rule
    from kfp_volcano.elastic.sharding import Data
    from kfp_volcano.schemas.training_job import RuntimeSettings

__all__ = ["Learning"]

_SCALED = ("lr", "betas", "alpha", "eps")
"""What a rule may change of a parameter group."""
_MOMENTS = {"exp_avg": 0, "exp_avg_sq": 1, "max_exp_avg_sq": 1}
"""Adam's moving averages, and which of the betas each has."""


@dataclass(slots=True)
class _Step:
    """What the last step was scaled with."""

    forgetting: float = 1.0
    behind: float = 0.0
    """Samples committed that were worth nothing to the schedule."""


class Learning:
    """Sets the optimizer's learning rate, and what else the rule asks for, before each update.

    Part of the shared state. Every step begins from the base values, which are kept aside: nothing is ever multiplied
    that was multiplied before.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr: float | Callable[[int], float] | LRScheduler | None,
        *,
        said: int | Batch | None,
        settings: RuntimeSettings,
        rule: Rule | None,
        data: Data,
    ) -> None:
        """Checks that rule, optimizer and batch fit each other.

        Args:
            optimizer: Whose parameter groups are set.
            lr: Base learning rate, a function from samples to it, or a scheduler; None: as it is in the optimizer.
            said: The batch, as the training code says it.
            settings: What the spec says.
            rule: The training code's own.
            data: What is fed.

        Raises:
            SpecError: with everything that does not fit.
        """
        code = said if isinstance(said, Batch) else Batch(size=said)
        batch = replace(settings.scaling, size=settings.batch).over(code)
        self.sizing = Sizing.of(batch)
        self.plan = data.plan(self.sizing.base)
        self._optimizer = optimizer
        self._lr = None if isinstance(lr, LRScheduler) else lr
        self._schedule: Schedule | None = None
        if isinstance(lr, LRScheduler):
            if lr.optimizer is not optimizer:
                raise SpecError([Problem("lr", "the scheduler is another optimizer's", "build it on the optimizer")])
            # Written for the code's batch, so that it ends with the training whatever the spec's is.
            self._schedule = Schedule(lr, size=data.size, batch=code.base or self.plan.batch)
        problems = _rules(batch, rule)
        kappa = self.sizing.batch(settings.workers or 1) / self.sizing.base
        problems = problems or misfits(batch, optimizer.param_groups, kappa)
        if problems:
            raise SpecError(problems, source="batch")
        self._rule_name = batch.rule
        self._rule = rule if rule is not None else None if batch.rule == "constant" else named(batch)
        self._ramp = Ramp(length=batch.ramp or 0)
        self._step = _Step()
        self._base = self._read()

    def progress(self, samples: int) -> float:
        """What so many committed samples are worth to the schedule, in samples of base batches."""
        return samples - self._step.behind

    def prepare(self, *, workers: int, samples: int, count: int, noise_scale: float | None) -> float:
        """Sets what the update learns at; returns the learning rate of the first group.

        Args:
            workers: That took part in the step.
            samples: Committed before it.
            count: In it.
            noise_scale: As the workers agree on it (`scaling.Situation`).
        """
        groups = self._optimizer.param_groups
        progress = self.progress(samples)
        if self._rule is None:
            self._set_base(progress)
            return float(groups[0]["lr"])
        situation = Situation(
            workers=workers,
            batch=self.sizing.batch(workers),
            base_batch=self.sizing.base,
            samples=samples,
            progress=progress,
            size=self.plan.size,
            epochs=self.plan.epochs,
            noise_scale=noise_scale,
        )
        said = self._rule(situation)
        factors = said if isinstance(said, Factors) else Factors(lr=float(said))
        self._ramp = self._ramp.toward(factors.lr, samples)
        self._write(self._base)
        self._set_base(progress)
        self._base = self._read()
        self._scale(self._ramp.at(samples), factors)
        if factors.gain is not None:
            self._step.behind += count * (1.0 - factors.gain / situation.kappa)
        return float(groups[0]["lr"])

    def _set_base(self, progress: float) -> None:
        if self._schedule is not None:
            self._schedule.advance(progress)
        elif self._lr is not None:
            lr = self._lr(int(progress)) if callable(self._lr) else self._lr
            for group in self._optimizer.param_groups:
                _assign(group, "lr", lr)

    def _scale(self, lr: float, factors: Factors) -> None:
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            _assign(group, "lr", base["lr"] * lr)
            if "betas" in base:
                group["betas"] = tuple(scaled_beta(beta, factors.forgetting) for beta in base["betas"])
                if factors.forgetting != self._step.forgetting:
                    before = [scaled_beta(beta, self._step.forgetting) for beta in base["betas"]]
                    self._correct_bias(group, before)
            if "alpha" in base:
                group["alpha"] = scaled_beta(base["alpha"], factors.forgetting)
            if "eps" in base:
                group["eps"] = base["eps"] * factors.eps
        self._step.forgetting = factors.forgetting

    def _correct_bias(self, group: Mapping[str, Any], before: list[float]) -> None:
        """Adam's correction counts steps as if its betas had never changed: its averages are made so that it is right.

        RMSprop corrects nothing, and so needs nothing.
        """
        for parameter in group["params"]:
            state = self._optimizer.state.get(parameter, {})
            steps = int(state.get("step", 0))
            for name, which in _MOMENTS.items():
                if steps and name in state:
                    ratio = bias_ratio(before[which], group["betas"][which], steps)
                    if ratio != 1.0:
                        state[name].mul_(ratio)

    def _read(self) -> list[dict[str, Any]]:
        return [
            {
                name: float(value) if isinstance(value, Tensor) else value
                for name, value in group.items()
                if name in _SCALED
            }
            for group in self._optimizer.param_groups
        ]

    def _write(self, base: list[dict[str, Any]]) -> None:
        for group, values in zip(self._optimizer.param_groups, base, strict=True):
            for name, value in values.items():
                _assign(group, name, value)

    def basis(self, samples: int) -> dict[str, Any]:
        """From what the present learning rate follows, for people: base values, what they were chosen for, the rule.

        Args:
            samples: Committed so far.
        """
        base = self._read() if self._rule is None else self._base
        return {
            "lr": [float(values["lr"]) for values in base],
            "batch": self.sizing.base,
            "rule": self._rule_name,
            "schedule": "function" if callable(self._lr) else self._schedule and self._schedule.name,
            "progress": self.progress(samples),
        }

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "base": [] if self._rule is None else self._base,
            "ramp": [self._ramp.began, self._ramp.start, self._ramp.target],
            "forgetting": self._step.forgetting,
            "behind": self._step.behind,
            "schedule": None if self._schedule is None else self._schedule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's, after the optimizer did."""
        if state["base"]:
            self._write(state["base"])
        self._base = self._read()
        began, start, target = state["ramp"]
        self._ramp = Ramp(length=self._ramp.length, began=began, start=start, target=target)
        self._step = _Step(state["forgetting"], state["behind"])
        if self._schedule is not None and state["schedule"] is not None:
            self._schedule.load_state_dict(state["schedule"])


def _rules(batch: Batch, rule: Rule | None) -> list[Problem]:
    path = "elasticity.batch.rule"
    if rule is not None and batch.rule not in ("custom", "constant"):
        words = f"is {batch.rule}, but the training code passes a rule= of its own"
        return [Problem(path, words, "rule: custom, or no rule= in the code")]
    if rule is None and batch.rule == "custom":
        return [Problem(path, "is custom, but the training code passes no rule=", "Training(..., rule=my_rule)")]
    return []


def _assign(group: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(group[name], Tensor):
        group[name].fill_(value)
    else:
        group[name] = value
