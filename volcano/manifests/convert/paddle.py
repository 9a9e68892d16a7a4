# SPDX-License-Identifier: Apache-2.0
"""PaddleJob (kubeflow.org/v1) to a TrainingJob of framework `custom`.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/paddlepaddle_types.go; the environment of its
pods: pkg/controller.v1/paddlepaddle/envvar.go. `paddle.distributed.launch` hands out ranks itself, at PADDLE_MASTER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert import kubeflow, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.program import replace_hosts

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert"]

_PORT = ("master", 36543)


def convert(document: View) -> Job:
    """The TrainingJob of a PaddleJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    drafts = kubeflow.read_replicas(
        spec.map("paddleReplicaSpecs"),
        {"Master": "master", "Worker": "worker"},
        main=("paddle",),
        restart="OnFailure",
    )
    servers = drafts[0].name == "master"
    replace_hosts(drafts, metadata.name, "master" if servers else "worker", account)
    port = kubeflow.take_port(drafts, *_PORT, account)
    variables = {
        "PADDLE_MASTER": f"{ranks.LEADER}:{port}",
        "PADDLE_NNODES": str(ranks.size(drafts)),
        "PADDLE_JOB_ID": metadata.name,
        "PYTHONUNBUFFERED": "1",
    }
    for draft in drafts:
        # With a master it is a job of parameter servers: one server or one trainer a pod.
        kind = {"PADDLE_SERVER_NUM": "1"} if draft.name == "master" else {"PADDLE_TRAINER_NUM": "1"}
        ranks.tell(draft, {**variables, **(kind if servers else {})}, account)
        if servers and draft.name == "master":
            draft.parts["success"] = True  # as the operator has it
    policy = spec.map("elasticPolicy")
    for key in ("minReplicas", "maxReplicas", "maxRestarts", "metrics"):
        policy.lost(key, "PADDLE_NNODES is told to the pods once: the job keeps its size", "a job of fixed size")
    job = new_job(metadata, "custom", drafts)
    kubeflow.apply_run_policy(spec.map("runPolicy"), job)
    return job
