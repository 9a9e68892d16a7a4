# SPDX-License-Identifier: Apache-2.0
"""JAXJob (kubeflow.org/v1) to a TrainingJob of framework `custom`.

Source: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/jax_types.go; the environment of its pods:
pkg/controller.v1/jax/envvar.go. `jax.distributed.initialize()` reads the variables with JAX_ in front by itself.
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

_PORT = ("jaxjob-port", 6666)


def convert(document: View) -> Job:
    """The TrainingJob of a JAXJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    metadata = read_metadata(document)
    (worker,) = kubeflow.read_replicas(spec.map("jaxReplicaSpecs"), {"Worker": "worker"}, main=("jax",))
    replace_hosts([worker], metadata.name, "worker", account)
    port = kubeflow.take_port([worker], *_PORT, account)
    variables = {
        "COORDINATOR_ADDRESS": ranks.LEADER,
        "COORDINATOR_PORT": str(port),
        "NUM_PROCESSES": str(worker.replicas),
        "PROCESS_ID": ranks.INDEX,
        "JAX_COORDINATOR_ADDRESS": f"{ranks.LEADER}:{port}",
        "JAX_NUM_PROCESSES": str(worker.replicas),
        "JAX_PROCESS_ID": ranks.INDEX,
        "PYTHONUNBUFFERED": "1",
    }
    ranks.tell(worker, variables, account)
    job = new_job(metadata, "custom", [worker])
    kubeflow.apply_run_policy(spec.map("runPolicy"), job)
    return job
