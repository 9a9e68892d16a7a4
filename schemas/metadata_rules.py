# SPDX-License-Identifier: Apache-2.0
"""Labels and annotations that are not a user's to set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_FIELDS = (
    "kubernetes.io/config.",
    "scheduler.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "container.apparmor.security.beta.kubernetes.io/",
)
"""Annotations of old versions of Kubernetes that became fields of pods."""
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INT32 = 2**31


def findings(metadata: Any, path: Path) -> Iterator[Finding]:
    """What is wrong with the labels and annotations of a Job or its pods, key by key."""
    if not isinstance(metadata, dict):
        return
    for key in _keys(metadata, "labels"):
        if names.is_reserved_label(key):
            yield Finding((*path, "labels", key), "is a label that others set", "use a prefix of your own")
    for key in _keys(metadata, "annotations"):
        place = (*path, "annotations", key)
        if names.is_reserved_annotation(key):
            yield Finding(place, "is an annotation that others set", "use another prefix")
        elif key.startswith(_FIELDS):
            yield Finding(place, "has become a field of pods", "say it in pod or podPatch")
        elif key == _DELETION_COST and not _is_int32(metadata["annotations"][key]):
            yield Finding(place, "is no whole number of 32 bits", "for example 100, in quotes")


def _keys(metadata: Mapping[str, Any], field: str) -> list[str]:
    value = metadata.get(field)
    return list(value) if isinstance(value, dict) else []


def _is_int32(text: Any) -> bool:
    """Strictly as GetDeletionCostFromPodAnnotations (pkg/apis/core/v1/helper) reads it; what is no text was told."""
    if not isinstance(text, str):
        return True
    return re.fullmatch(r"0|-?[1-9][0-9]*", text) is not None and -_INT32 <= int(text) < _INT32
