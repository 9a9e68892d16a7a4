"""What a user sets on the KFP task is for the workers, not for the step that creates them.

Without a passthrough KFP would put it on the step's own pod: GPUs and volumes would go to a process that waits.
"""

import dataclasses
from typing import Any, Optional

from kfp import dsl

__all__ = ["PASSED_ON", "said"]

PASSED_ON: list[Any] = list(dsl.TaskConfigField) if hasattr(dsl, "TaskConfigField") else []
"""All that KFP can pass on."""


def said(config: Optional[dsl.TaskConfig]) -> dict[str, Any]:
    """What the task says, in Kubernetes' own words; nothing where KFP fills it in for nobody, as its local runner."""
    return {} if config is None else {key: value for key, value in dataclasses.asdict(config).items() if value}
