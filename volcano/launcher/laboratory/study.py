# SPDX-License-Identifier: Apache-2.0
"""What a comparison of policies came to, and its form as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.verdicts import interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.simulator.figures import Figures
    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.elastic.simulator.verdicts import Verdict
    from kfp_volcano.volcano.launcher.laboratory.sweep import Swept

__all__ = ["Replicated", "Study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """The same comparison on other loads."""

    count: int
    how: str
    """What is random in them, for people."""
    figures: Mapping[str, tuple[Figures, ...]]
    """By policy, in the order of the replications."""
    verdicts: tuple[Verdict, ...]

    def means(self, policy: str) -> dict[str, Any]:
        """The mean of each figure of a policy with its 95 % t-interval; None where a replication has none."""
        rows = [asdict(each) for each in self.figures[policy]]
        return {
            key: None if any(row[key] is None for row in rows) else asdict(interval([row[key] for row in rows]))
            for key in rows[0]
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A comparison of policies on a scenario."""

    scenario: Scenario
    seed: int
    outcomes: Mapping[str, Outcome]
    """By policy, in the order given."""
    figures: Mapping[str, Figures]
    replicated: Replicated | None = None
    swept: Swept | None = None

    def wire(self) -> dict[str, Any]:
        """All figures, as JSON."""
        scenario = self.scenario
        told: dict[str, Any] = {
            "scenario": scenario.name,
            "source": scenario.source,
            "notes": list(scenario.notes),
            "gpus": scenario.gpus,
            "nodes": len(scenario.nodes),
            "jobs": len(scenario.jobs),
            "seed": self.seed,
            "policies": {
                name: {**asdict(self.figures[name]), "events": outcome.events, "notes": list(outcome.notes)}
                for name, outcome in self.outcomes.items()
            },
        }
        if self.replicated:
            told["replications"] = {
                "count": self.replicated.count,
                "how": self.replicated.how,
                "policies": {name: self.replicated.means(name) for name in self.replicated.figures},
                "verdicts": [
                    {**asdict(each), "significant": each.significant, "better": each.better}
                    for each in self.replicated.verdicts
                ],
            }
        if self.swept:
            told["sweep"] = self.swept.wire()
        return told
