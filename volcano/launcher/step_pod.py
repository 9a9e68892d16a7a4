# SPDX-License-Identifier: Apache-2.0
"""What the pod that a step runs in says: where Jobs go that name no namespace, and which run they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ForbiddenError, NotFoundError, Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["check_mount", "in_own_namespace", "run_of", "unowned"]

_ARGO = "argoproj.io/"


def in_own_namespace(wire: Any, pod: Manifest | None) -> Any:
    """A TrainingJob on the wire, in the step's namespace where it names none: there its run's rights and quotas hold.

    What is no TrainingJob is left to whoever checks it.
    """
    metadata = wire.get("metadata") if isinstance(wire, dict) else None
    if pod is None or not isinstance(metadata, dict) or "namespace" in metadata:
        return wire
    return {**wire, "metadata": {**metadata, "namespace": pod["metadata"]["namespace"]}}


def run_of(owned: Manifest | None) -> Manifest | None:
    """The owner reference to the run: the Argo Workflow that owns a step's pod, or a Job; None where none is known.

    On a Job it makes the run neither the Job's controller nor wait for it.
    """
    owners: list[Mapping[str, Any]] = owned["metadata"].get("ownerReferences") or [] if owned else []
    for owner in owners:
        if owner["kind"] == "Workflow" and owner["apiVersion"].startswith(_ARGO):
            return {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    return None


def unowned(pod: Manifest | None, namespace: str) -> str | None:
    """Why the run of the step cannot own a Job in `namespace`, and what that means, in a line; None where it can.

    Kubernetes knows owners in the same namespace only.
    """
    own = pod["metadata"]["namespace"] if pod else namespace
    if pod is None or (own == namespace and run_of(pod)):
        return None
    if own != namespace:
        why = f"the run is in namespace {own} and its Job in {namespace}"
    else:
        why = f"pod {own}/{pod['metadata']['name']} names no Argo Workflow, or may not be read (pods: get)"
    return f"{why}: when the run is deleted the Job stays until it ends, or until `kfp-volcano reap` finds it"


def check_mount(cluster: Cluster, pod: Manifest | None, job: TrainingJob, claim: str) -> str | None:
    """Look whether the steps after this one can start, which mount `claim`; empty if they mount none.

    A pod whose claim is not there waits for ever, and the exit task of a terminated run would be such a pod.

    Returns:
        What to tell the user: that nobody will look at the Job's volume; None where all is well.

    Raises:
        SpecError: The claim is not there, or the workers save to another one.
    """
    saved = job.checkpoint.volume if job.checkpoint else None
    if pod is None or saved is None:
        return None
    if not claim:
        return (
            f"the steps of this run do not mount claim {saved}: the model stays there, and the report is without what"
            f' is computed from it. Leave metadata.namespace out, or say volume="{saved}" beside the spec'
        )
    if claim != saved:
        raise SpecError(
            [Problem("volume", f"the steps mount claim {claim}, the workers save to {saved}", "say the same claim")],
            source=f"TrainingJob {job.name}",
        )
    own = pod["metadata"]["namespace"]
    try:
        cluster.get("PersistentVolumeClaim", claim, own)
    except ForbiddenError:
        return None
    except NotFoundError:
        remedy = 'create it, or say volume="" beside the spec to do without'
        raise SpecError(
            [Problem("volume", f"namespace {own} has no claim {claim}, which the run's steps mount", remedy)],
            source=f"TrainingJob {job.name}",
        ) from None
    if own == job.namespace:
        return None
    return f"the Job's claim {claim} is in namespace {job.namespace}, that of the run's steps in {own}: two volumes"
