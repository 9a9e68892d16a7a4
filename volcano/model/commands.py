# SPDX-License-Identifier: Apache-2.0
"""Commands: what a user asks of a Job or a queue, carried out once.

Sources: addCommand, processNextCommand (pkg/controllers/job/job_controller_handler.go) and handleCommand
(pkg/controllers/queue/queue_controller.go), Volcano 1.15.1. `vcctl job suspend` is AbortJob, `resume` ResumeJob.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.lifecycle import Request
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.queue_controller import QueueRequest

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["command_request"]

_TARGETS = {"batch.volcano.sh/v1alpha1": "Job", "scheduling.volcano.sh/v1beta1": "Queue"}


def command_request(command: Manifest) -> Request | QueueRequest | None:
    """What a Command asks for, or None if it is for neither controller, which then leave it where it is."""
    target = command.get("target") or {}
    kind = target.get("kind")
    if not kind or _TARGETS.get(target.get("apiVersion", "")) != kind:
        return None
    if kind == "Queue":
        return QueueRequest(target["name"], command["action"])
    return Request((key_of(command)[0], target["name"]), "CommandIssued", action=command["action"])
