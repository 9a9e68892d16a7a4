# SPDX-License-Identifier: Apache-2.0
"""What a user sets on the KFP task is for the workers, not for the step that creates them.

Without a passthrough KFP would put it on the step's own pod: GPUs and volumes would go to a process that waits.
"""

import dataclasses
from typing import Any, Optional

from kfp import dsl

from kfp_volcano.schemas.names import MOUNT_PATH

__all__ = ["PASSED_ON", "PASSED_ON_BUT_VOLUMES_KEPT", "said"]

PASSED_ON: list[Any] = list(dsl.TaskConfigField) if hasattr(dsl, "TaskConfigField") else []
"""All that KFP can pass on."""

PASSED_ON_BUT_VOLUMES_KEPT: list[Any] = [
    dsl.TaskConfigPassthrough(field=field, apply_to_task=True) if field.name == "KUBERNETES_VOLUMES" else field
    for field in PASSED_ON
]
"""The same, for a step that mounts the checkpoint volume itself: KFP passes on all volumes of a task or none."""


def said(config: Optional[dsl.TaskConfig]) -> dict[str, Any]:
    """What the task says of the workers, in Kubernetes' own words; nothing where KFP fills in none (its local runner).

    The step's own mount of the checkpoint volume says nothing of them: they have it from the spec.
    """
    if config is None:
        return {}
    found = {key: value for key, value in dataclasses.asdict(config).items() if value}
    mounts = [each for each in found.get("volume_mounts", ()) if each.get("mountPath") != MOUNT_PATH]
    mounted = {each["name"] for each in mounts}
    ours = {each["name"] for each in found.get("volume_mounts", ())} - mounted
    volumes = [each for each in found.get("volumes", ()) if each["name"] not in ours]
    found |= {"volume_mounts": mounts, "volumes": volumes}
    return {key: value for key, value in found.items() if value}
