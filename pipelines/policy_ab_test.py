# SPDX-License-Identifier: Apache-2.0
"""Would another policy be better? Tried in the simulator, and put in force if it is: to be run, and to be copied.

``compare → If it is accepted: put-policy``. Both policies are replayed on the scenario and on other loads like it, the
same for both. On this machine: ``kfp-volcano run pipelines/policy_ab_test.py --local --out tested``, then look at
``tested/policies.html``. For a backend: ``kfp-volcano submit pipelines/policy_ab_test.py --host URL``.
"""

import json

from kfp import dsl

from kfp_volcano.components.policy_test import compare_policies, put_policy
from kfp_volcano.pipelines.segments import always_run

# In one line: kfp writes defaults into a comment of the compiled pipeline, which a second line would end.
SCENARIO = json.dumps({
    "apiVersion": "kfp-volcano/v1",
    "kind": "Scenario",
    "metadata": {"name": "working-day"},
    "spec": {
        "until": "8h",
        "cluster": {"nodes": [{"count": 4, "gpus": 8}]},
        "loads": [
            {
                "name": "day",
                "arrivals": {"poisson": {"perHour": 12}},
                "jobs": [
                    {"name": "trial", "gpus": [1, 2], "duration": {"lognormal": {"median": "10m"}}, "weight": 3},
                    {
                        "name": "training",
                        "gpus": [4, 8],
                        "elastic": {"least": 0.5, "most": 2},
                        "duration": {"lognormal": {"median": "1h"}},
                    },
                ],
            }
        ],
    },
})  # fmt: skip
CANDIDATE = json.dumps({
    "apiVersion": "kfp-volcano/v1",
    "kind": "Policy",
    "metadata": {"name": "default"},
    "spec": {"queues": ["*"], "policy": "threshold", "threshold": {"up": {"idleShare": 0.1}}},
})  # fmt: skip


@dsl.pipeline(name="policy-ab-test", description="Compare two policies in the simulator; put the better one in force.")
def policy_ab_test_pipeline(
    scenario: str = SCENARIO,
    current: str = "threshold",
    candidate: str = CANDIDATE,
    metric: str = "avg_jct",
    least_gain: float = 5.0,
    replications: int = 20,
    seed: int = 0,
    namespace: str = "",
) -> None:
    """Put `candidate` in force in `namespace` if it is better than `current` by `least_gain` per cent, significantly.

    The Policy takes the place of the one of its name in the ConfigMap that autoscalers read; `namespace` is by default
    the run's own. A trace that the scenario names lies on a claim: mount it into `compare_policies`.
    """
    compared = always_run(
        compare_policies(
            scenario=scenario,
            current=current,
            candidate=candidate,
            metric=metric,
            least_gain=least_gain,
            replications=replications,
            seed=seed,
        ),
        "compare",
    )
    # kfp.local resolves conditions on an output of this name alone.
    with dsl.If(compared.outputs["Output"] == "accept", name="accepted"):
        always_run(put_policy(candidate=candidate, namespace=namespace), "put-policy")
