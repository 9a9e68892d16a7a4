# SPDX-License-Identifier: Apache-2.0
"""TFJob (kubeflow.org/v1) to a TrainingJob.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/tensorflow_types.go; TF_CONFIG:
pkg/controller.v1/tensorflow/tensorflow.go; when it has succeeded: tfjob_controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert import kubeflow
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.program import replace_hosts
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert"]

_PORT = ("tfjob-port", 2222)
_ROLES = {"Chief": "chief", "Master": "chief", "Worker": "worker", "PS": "ps", "Evaluator": "evaluator"}


def convert(document: View) -> Job:
    """The TrainingJob of a TFJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    specs = spec.map("tfReplicaSpecs")
    drafts = kubeflow.read_replicas(specs, _ROLES, main=("tensorflow",))
    roles = [draft.name for draft in drafts]
    if roles.count("chief") > 1:
        refuse(specs.at(), "has Chief and Master, which are the same", "one of them")
    replace_hosts(drafts, metadata.name, "chief", account)
    kubeflow.take_port(drafts, *_PORT, account)
    policy = spec.text("successPolicy")
    workers = [draft for draft in drafts if draft.name == "worker"]
    for worker in workers:
        if policy == "AllWorkers":
            worker.parts["success"] = True
            account.kept(spec.at("successPolicy"), worker.place("success"))
        elif "chief" not in roles and worker.replicas != 1:
            account.changed(
                spec.at("successPolicy"),
                worker.place("success"),
                "the job has succeeded once all workers have, not once the first has",
            )
    if policy and policy != "AllWorkers":
        refuse(spec.at("successPolicy"), f"there is no {policy}", "AllWorkers, or nothing")
    if spec.flag("enableDynamicWorker"):
        spec.lost(
            "enableDynamicWorker",
            "a sparse TF_CONFIG, in which each worker knows itself and the parameter servers alone, is not made",
            "elasticity: {strategy: restart} resizes a TensorFlow job by starting it anew",
        )
    job = new_job(metadata, "tensorflow", drafts)
    kubeflow.apply_run_policy(spec.map("runPolicy"), job)
    return job
