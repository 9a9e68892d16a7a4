# SPDX-License-Identifier: Apache-2.0
"""XGBoostJob (kubeflow.org/v1) to a TrainingJob of framework `custom`.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/xgboost_types.go;
the environment of its pods: pkg/controller.v1/xgboost/xgboost.go. LightGBM jobs are XGBoostJobs too; they read
WORKER_ADDRS and WORKER_PORT.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert import kubeflow, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.program import replace_hosts, texts
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["convert"]

_PORT = ("xgboostjob-port", 9999)
_LIGHTGBM = re.compile("lightgbm", re.IGNORECASE)


def convert(document: View) -> Job:
    """The TrainingJob of an XGBoostJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    specs = spec.map("xgbReplicaSpecs")
    drafts = kubeflow.read_replicas(specs, {"Master": "master", "Worker": "worker"}, main=("xgboost",))
    if drafts[0].name != "master":
        refuse(specs.at("Master"), "is missing", "the operator's XGBoostJob has one master")
    for draft in drafts:
        if any(_LIGHTGBM.search(text) for text in (draft.parts.get("image", ""), *texts(draft))):
            refuse(
                specs.at(),
                "trains with LightGBM, which reads the workers' hosts from WORKER_ADDRS: nothing sets it",
                "framework custom with a command that takes them from VC_<TASK>_HOSTS, which Volcano sets",
            )
    replace_hosts(drafts, metadata.name, "master", account)
    port = kubeflow.take_port(drafts, *_PORT, account)
    pods = ranks.size(drafts)
    variables = {
        "MASTER_ADDR": ranks.LEADER,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(pods),
        "PYTHONUNBUFFERED": "1",
    }
    for draft in drafts:
        ranks.tell(draft, variables, account)
    if pods > 1:
        account.lost(specs.at(), "WORKER_ADDRS and WORKER_PORT, which only LightGBM reads, are not set")
    job = new_job(metadata, "custom", drafts)
    job.drafts = ranks.ranked(drafts, ("RANK",), specs, account)
    kubeflow.apply_run_policy(spec.map("runPolicy"), job)
    return job
