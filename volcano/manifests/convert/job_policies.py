# SPDX-License-Identifier: Apache-2.0
"""The lifecycle policies of a Volcano Job as what a TrainingJob does about faults.

Source: volcano-sh/volcano (v1.15), staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go (`LifecyclePolicy`) and
pkg/apis/bus/v1alpha1/{actions,events}.go. Of several policies for an event the first counts, a task's before its Job's
(`applyPolicies`, pkg/controllers/job/job_controller_util.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["read_policies"]

_KEYS = {"PodFailed": "failed", "TaskFailed": "failed", "PodEvicted": "evicted"}
_ENDS = {"TerminateJob": "fail", "AbortJob": "fail"}
_FAILED = {**_ENDS, "RestartJob": "restartJob"}
_EVICTED = {**_FAILED, "RestartTask": "replace", "RestartPod": "replace"}
_PENDING = {"TerminateJob": "fail", "AbortJob": "abort", "RestartJob": "restartJob"}
_ANY = ("PodFailed", "PodEvicted")
"""What `*` means, of the events that lead to something here."""
_MOST_RETRIES = 1000


def read_policies(spec: View, tasks: Sequence[tuple[View, Draft]], job: Job) -> None:
    """Read `policies` and `maxRetry` of a Job and of its tasks, and the restart policies of their pods."""
    retries: list[tuple[str, int]] = []
    places: list[tuple[View, Draft | None]] = [*tasks, (spec, None)]
    for view, draft in places:
        for policy in view.maps("policies"):
            _read(policy, job, draft)
        if (limit := view.number("maxRetry")) is not None:
            retries.append((view.at("maxRetry"), limit))
    _restarts(job, spec)
    _retries(job, retries, spec.account)


def _retries(job: Job, said: Sequence[tuple[str, int]], account: Account) -> None:
    """What the Job and its tasks say of `maxRetry`: the largest counts."""
    place, tried = "spec.faults.retries", job.faults["failed"] != "fail"
    if said and tried:
        job.faults["retries"] = min(max(1, *(limit for _, limit in said)), _MOST_RETRIES)
    for path, limit in said:
        if not tried:
            account.changed(path, "spec.faults.failed", "nothing is tried again")
        elif limit == job.faults["retries"]:
            account.kept(path, place)
        else:
            account.changed(path, place, f"is {job.faults['retries']} for all: the largest, from 1 to {_MOST_RETRIES}")


def _read(policy: View, job: Job, draft: Draft | None) -> None:
    single = policy.text("event")
    events = [*policy.texts("events"), *([single] if single else [])]
    action = policy.text("action") or ""
    for event in events:
        targets = {_apply(each, action, policy, job, draft) for each in (_ANY if event == "*" else (event,))}
        for target in targets:
            if target:
                policy.account.kept(policy.at(), target)
            else:
                policy.account.lost(policy.at(), f"nothing does {action} on {event}", "see what spec.faults can do")
    if not events and "exitCode" not in policy:
        policy.account.lost(policy.at(), "is for no event")
    policy.lost("exitCode", f"what follows does not depend on the exit code: nothing does {action}")
    policy.changed("timeout", "spec.faults.pending", "is for pods that wait for too long alone")


def _apply(event: str, action: str, policy: View, job: Job, draft: Draft | None) -> str | None:
    """Where in the TrainingJob it stands that an event leads to an action; None where nothing does that."""
    if event == "TaskCompleted" and action == "CompleteJob":
        names = {draft.name} if draft else {known.name for known in job.drafts}
        for known in job.drafts:
            if known.name in names:
                known.parts["success"] = True
        return "success of the role"
    if event == "PodPending" and action in _PENDING and "timeout" in policy:
        after = policy.text("timeout", to="spec.faults.pending.after")
        job.faults.setdefault("pending", {"after": after, "then": _PENDING[action]})
        return "spec.faults.pending"
    key = _KEYS.get(event)
    then = (_FAILED if key == "failed" else _EVICTED).get(action)
    if key is None or then is None:
        return None
    return f"spec.faults.{key}" if job.faults.setdefault(key, then) == then else None


def _restarts(job: Job, spec: View) -> None:
    """What a failed program leads to where no policy says it: its pod's restart policy decides.

    A pod whose program is not started again in place fails when it is taken away, too, so that both lead to the same.
    """
    account, faults = spec.account, job.faults
    path = "spec.faults.failed"
    origins = [origin for draft in job.drafts for origin in draft.origins]
    never = all(draft.restart == "Never" for draft in origins)
    if "failed" in faults:
        for draft in origins:
            account.changed(draft.restart_path, path, f"{faults['failed']} is what the policies say")
    else:
        evicted = faults.get("evicted")
        faults["failed"] = "retry" if not never else evicted if evicted in ("restartJob", "fail") else "fail"
        for draft in origins:
            if never and faults["failed"] == "restartJob":
                account.changed(
                    draft.restart_path, path, "a program's failure starts the Job anew, as an eviction does"
                )
            elif (draft.restart == "Never") == never:
                account.kept(draft.restart_path, path)
            else:
                account.changed(draft.restart_path, path, "one rule holds for all roles: retry")
    if faults["failed"] != "retry" and faults.get("evicted", faults["failed"]) != faults["failed"]:
        why = f"a pod that is taken away has failed, too: {faults['failed']}, not {faults.pop('evicted')}"
        account.changed(spec.at("policies"), path, why, "failed: retry keeps them apart")
