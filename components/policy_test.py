# SPDX-License-Identifier: Apache-2.0
"""The steps of a policy test: two policies compared in the simulator, then the better one put in force."""

from kfp import dsl

from kfp_volcano.components.step import step

__all__ = ["compare_policies", "put_policy"]


@step()
def compare_policies(
    scenario: str,
    current: str,
    candidate: str,
    metric: str,
    least_gain: float,
    replications: int,
    seed: int,
    page: dsl.Output[dsl.HTML],
    report: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
) -> str:
    """Compare two policies on a scenario and on other loads like it.

    Args:
        scenario: A Scenario document.
        current: The policy in force: a Policy document, or a name.
        candidate: The one that may take its place: likewise.
        metric: What they are compared by.
        least_gain: Per cent by which the candidate has to be better.
        replications: On how many other loads.
        seed: Of what is drawn.
        page: Figures, timelines and jobs, one self-contained page.
        report: The verdict and the figures, in a few lines.
        metrics: The metric under both.

    Returns:
        `accept` or `keep`.
    """
    from kfp_volcano.volcano.launcher.policy_test_steps import Asked, compare_step

    asked = Asked(
        scenario=scenario,
        current=current,
        candidate=candidate,
        metric=metric,
        least_gain=least_gain,
        replications=replications,
        seed=seed,
    )
    found = compare_step(asked, page=page.path, summary=report.path)
    for name, figures in found.study.figures.items():
        if (value := getattr(figures, metric)) is not None:
            metrics.log_metric(f"{name} {metric}", value)
    return "accept" if found.accepted else "keep"


@step()
def put_policy(candidate: str, namespace: str) -> str:
    """Write a Policy where autoscalers take it up.

    Args:
        candidate: A Policy document, or a name that autoscalers know.
        namespace: The autoscaler's; empty: this step's.

    Returns:
        Where it is.
    """
    from kfp_volcano.volcano.launcher.policy_test_steps import put_step

    return put_step(candidate, namespace=namespace)
