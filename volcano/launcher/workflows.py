"""Which pipeline runs live, by their Argo Workflows: KFP puts the run's id on each as a label.

A Workflow is there before anything that its steps create, and KFP's time to live removes it an hour after its end. So
a run without one is over, wherever all Workflows can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ForbiddenError, InvalidError
from kfp_volcano.volcano.model.objects import labels_of, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["EXIT_S", "RUN_ID_LABEL", "Runs", "ending_of", "read_runs"]

RUN_ID_LABEL = "pipeline/runid"
EXIT_S = 600.0
"""How long the exit step of a terminated run has to start and to look at its Jobs, seconds. It may never start: where
the Job itself holds all of the namespace's quota."""

_ENDED = frozenset({"Succeeded", "Failed", "Error"})


@dataclass(frozen=True, slots=True)
class Runs:
    """The Workflows that could be seen."""

    workflows: Mapping[str, Sequence[Manifest]]
    """By run id; a run that was retried may have had several."""
    namespace: str = ""
    """Where; empty: everywhere."""
    hidden: str = ""
    """Why none could be seen at all; empty: they could."""

    def ended(self, run_id: str, namespace: str, now: float) -> tuple[bool, str]:
        """Whether a run whose Workflow is in `namespace` (empty: not known) is over, and how that is known."""
        if self.hidden:
            return False, self.hidden
        found = self.workflows.get(run_id, ())
        endings = [ending_of(each, now) for each in found]
        for workflow, ending in zip(found, endings, strict=True):
            if ending is None:
                return False, f"run {run_id} lives: Workflow {_named(workflow)} is {_phase(workflow) or 'starting'}"
        if endings:
            return True, f"run {run_id} is over: Workflow {_named(found[-1])} {endings[-1]}"
        if self.namespace not in {"", namespace}:
            return False, f"run {run_id} is not in namespace {self.namespace}, and no other may be looked at"
        return True, f"run {run_id} is over: its Workflow is gone"


def read_runs(cluster: Cluster, namespace: str, run_id: str | None = None) -> Runs:
    """The Workflows of all namespaces, or where only that is allowed of one; of one run where it is named."""
    labels = {} if run_id is None else {RUN_ID_LABEL: run_id}
    everywhere = _read(cluster, "", labels)
    return _read(cluster, namespace, labels) if everywhere.hidden and namespace else everywhere


def _read(cluster: Cluster, namespace: str, labels: Mapping[str, str]) -> Runs:
    try:
        return Runs(_by_run(cluster.list("Workflow", namespace, labels)[0]), namespace)
    except InvalidError:
        return Runs({}, hidden="which runs live cannot be known: this cluster has no Argo Workflows")
    except ForbiddenError as error:
        return Runs({}, hidden=f"which runs live cannot be known: {error}")


def ending_of(workflow: Manifest, now: float) -> str | None:
    """How a Workflow has ended, in words; None while it lives."""
    if workflow["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    phase = _phase(workflow)
    if phase in _ENDED:
        return f"has {phase.lower()}" if phase != "Error" else "has ended with an error"
    spec = workflow.get("spec") or {}
    if spec.get("activeDeadlineSeconds") != 0 and not spec.get("shutdown"):
        return None
    # Terminated. Its exit step comes after, and writes the report; Argo takes some seconds to begin with it.
    active_at = max(_activity(workflow.get("status") or {}), default=None)
    if active_at is None or now < active_at + EXIT_S:
        return None
    return f"was terminated, and nothing has happened in it for {EXIT_S / 60:.0f} minutes"


def _by_run(workflows: Sequence[Manifest]) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for workflow in workflows:
        found.setdefault(labels_of(workflow).get(RUN_ID_LABEL, ""), []).append(workflow)
    return found


def _activity(status: Mapping[str, Any]) -> Iterator[float]:
    """When its nodes began and ended; none of those that are kept compressed or elsewhere, for many nodes."""
    for node in (status.get("nodes") or {}).values():
        for key in ("startedAt", "finishedAt"):
            if node.get(key):
                yield parse_time(str(node[key]))


def _phase(workflow: Manifest) -> str:
    return str((workflow.get("status") or {}).get("phase") or "")


def _named(workflow: Manifest) -> str:
    return f"{workflow['metadata']['namespace']}/{workflow['metadata']['name']}"
