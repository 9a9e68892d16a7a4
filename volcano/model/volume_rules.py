# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes refuses in a pod's volumes.

Source: ValidateVolumes, validateVolumeSource (pkg/apis/core/validation/validation.go), Kubernetes 1.35.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import label_faults
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["volume_faults"]

_NEEDS = {"secret": "secretName", "configMap": "name", "hostPath": "path", "persistentVolumeClaim": "claimName"}
"""The field that a kind of volume cannot do without."""


def volume_faults(volume: Mapping[str, Any], at: str) -> Iterator[Fault]:
    """What is wrong with a volume; one of no kind is an emptyDir."""
    name = volume["name"]
    kinds = [kind for kind, value in volume.items() if kind != "name" and value is not None]
    for kind in kinds[1:]:
        yield Fault(f"{at}.{kind}", "Forbidden: may not specify more than 1 volume type")
    for kind in kinds[:1]:
        needed = _NEEDS.get(kind)
        if needed and not volume[kind].get(needed):
            yield Fault(f"{at}.{kind}.{needed}", "Required value")
        elif kind == "hostPath" and ".." in volume[kind]["path"].split("/"):
            path = json.dumps(volume[kind]["path"])
            yield Fault(f"{at}.{kind}.path", f"Invalid value: {path}: must not contain '..'")
    if not name:
        yield Fault(f"{at}.name", "Required value")
    for sentence in label_faults(name) if name else ():
        yield Fault(f"{at}.name", f"Invalid value: {json.dumps(name)}: {sentence}")
