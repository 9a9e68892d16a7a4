# SPDX-License-Identifier: Apache-2.0
"""Which pipeline runs live, by their Argo Workflows: KFP puts the run's id on each as a label.

A Workflow is there before anything that its steps create, and KFP's time to live removes it an hour after its end. So
a run without one is over, wherever all Workflows can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ForbiddenError, InvalidError
from kfp_volcano.volcano.launcher.termination import is_terminated
from kfp_volcano.volcano.model.objects import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["EXIT_S", "RUN_ID_LABEL", "Run", "ending_of", "read_run"]

RUN_ID_LABEL = "pipeline/runid"
EXIT_S = 600.0
"""How long the exit step of a terminated run has to start and to look at its Jobs, seconds. It may never start: where
the Job itself holds all of the namespace's quota."""

_ENDED = frozenset({"Succeeded", "Failed", "Error"})


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline run, as far as it could be seen."""

    id: str
    workflows: Sequence[Manifest] = ()
    """One that was retried may have had several."""
    namespace: str = ""
    """Where they were looked for; empty: everywhere."""
    hidden: str = ""
    """Why none could be looked for at all; empty: they could."""

    def ended(self, namespace: str, now: float) -> tuple[bool, str]:
        """Whether the run, if its Workflow is in `namespace` (empty: not known), is over, and how that is known."""
        if self.hidden:
            return False, self.hidden
        ending = ""
        for workflow in self.workflows:
            where = f"Workflow {workflow['metadata']['namespace']}/{workflow['metadata']['name']}"
            found = ending_of(workflow, now)
            if found is None:
                return False, f"run {self.id} lives: {where} is {_phase(workflow) or 'starting'}"
            ending = f"{where} {found}"
        if ending:
            return True, f"run {self.id} is over: {ending}"
        if self.namespace not in {"", namespace}:
            return False, f"run {self.id} is not in namespace {self.namespace}, and no other may be looked at"
        return True, f"run {self.id} is over: its Workflow is gone"


def read_run(cluster: Cluster, run_id: str, namespace: str) -> Run:
    """A run by its Workflows, in all namespaces, or where only that is allowed in one."""
    everywhere = _read(cluster, run_id, "")
    return _read(cluster, run_id, namespace) if everywhere.hidden and namespace else everywhere


def _read(cluster: Cluster, run_id: str, namespace: str) -> Run:
    try:
        return Run(run_id, cluster.list("Workflow", namespace, {RUN_ID_LABEL: run_id})[0], namespace)
    except InvalidError:
        return Run(run_id, hidden="which runs live cannot be known: this cluster has no Argo Workflows")
    except ForbiddenError as error:
        return Run(run_id, hidden=f"which runs live cannot be known: {error}")


def ending_of(workflow: Manifest, now: float) -> str | None:
    """How a Workflow has ended, in words; None while it lives."""
    if workflow["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    phase = _phase(workflow)
    if phase in _ENDED:
        return f"has {phase.lower()}" if phase != "Error" else "has ended with an error"
    if not is_terminated(workflow) and not workflow["spec"].get("shutdown"):
        return None
    # Terminated. Its exit step comes after, and writes the report; Argo takes some seconds to begin with it.
    active_at = max(_activity(workflow.get("status") or {}), default=None)
    if active_at is None or now < active_at + EXIT_S:
        return None
    return f"was terminated, and nothing has happened in it for {EXIT_S / 60:.0f} minutes"


def _activity(status: Mapping[str, Any]) -> Iterator[float]:
    """When its nodes began and ended; none of those that are kept compressed or elsewhere, for many nodes."""
    for node in (status.get("nodes") or {}).values():
        for key in ("startedAt", "finishedAt"):
            if node.get(key):
                yield parse_time(str(node[key]))


def _phase(workflow: Manifest) -> str:
    return str((workflow.get("status") or {}).get("phase") or "")
