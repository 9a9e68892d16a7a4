# SPDX-License-Identifier: Apache-2.0
"""What Volcano's webhook refuses in a list of lifecycle policies.

Source: validatePolicies (pkg/webhooks/admission/jobs/validate/util.go), Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ACTIONS", "EVENTS", "policy_problem"]

EVENTS = ("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated")
"""Events that a policy may name."""
ACTIONS = (
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob",
    "ResumeJob",
)  # fmt: skip
"""Actions that a policy may name."""


def policy_problem(policies: Sequence[Mapping[str, Any]], at: str) -> str:
    """The webhook's sentence on a list of policies, or nothing: its first fault, and the `*` that is not alone."""
    faults = list(_faults(policies, at))
    if not faults:
        return ""
    count = "1 error" if len(faults) == 1 else f"{len(faults)} errors"
    listed = "".join(f"\t* {fault}\n" for fault in faults)
    valid = f" valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}];"
    return f"{count} occurred:\n{listed}\n{valid}"


def _faults(policies: Sequence[Mapping[str, Any]], at: str) -> Iterator[str]:
    events: set[str] = set()
    codes: set[int] = set()
    for policy in policies:
        fault = next(_faults_of(policy, at, events, codes), "")
        if fault:
            yield fault
            break
    if "*" in events and len(events) > 1:
        yield "if there's * here, no other policy should be here"


def _faults_of(policy: Mapping[str, Any], at: str, events: set[str], codes: set[int]) -> Iterator[str]:
    """What is wrong with a policy after those whose events and exit codes have been seen; adds its own to them.

    The action of a policy on an exit code is not looked at.
    """
    named = [*(policy.get("events") or ()), *([policy["event"]] if policy.get("event") else ())]
    code, action = policy.get("exitCode"), policy.get("action", "")
    if named and code is not None:
        yield "must not specify event and exitCode simultaneously"
    if not named and code is None:
        yield "either event and exitCode should be specified"
    for event in dict.fromkeys(named):
        if event not in EVENTS:
            yield f'{at}: Invalid value: "{event}": invalid policy event'
        if action not in ACTIONS:
            yield f'{at}: Invalid value: "{action}": invalid policy action'
        if event in events:
            yield f"duplicate event {event}  across different policy"
        events.add(event)
    if code == 0:
        yield "0 is not a valid error code"
    if code in codes:
        yield f"duplicate exitCode {code}"
    if code is not None:
        codes.add(code)
