# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes refuses in a container's requests and limits.

Source: validateResourceRequirements (pkg/apis/core/validation/validation.go) and the kinds of resources
(pkg/apis/core/helper/helpers.go), Kubernetes 1.35.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import key_faults
from kfp_volcano.volcano.model.resources import canonical, parse_quantity
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["amount_faults", "request_faults"]

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE = "hugepages-"
_QUOTA = "requests."
_WHOLE = 1000


def request_faults(stated: Mapping[str, Any], at: str) -> Iterator[Fault]:
    """Names and amounts, and requests against limits, resource by resource."""
    limits, requests = stated.get("limits") or {}, stated.get("requests") or {}
    for name, amount in sorted(limits.items()):
        yield from _resource_faults(name, amount, f"{at}.limits[{name}]")
    for name, amount in sorted(requests.items()):
        yield from _resource_faults(name, amount, f"{at}.requests[{name}]")
        yield from _comparison_faults(name, amount, limits.get(name), at)
    named = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in named) and not named & {"cpu", "memory"}:
        yield Fault(at, "Forbidden: HugePages require cpu or memory")


def amount_faults(name: str, amount: Any, at: str) -> Iterator[Fault]:
    """An amount below nothing, or a part of what is not divisible (ValidateResourceQuantityValue)."""
    milli, quoted = parse_quantity(amount), json.dumps(canonical(amount))
    if milli < 0:
        yield Fault(at, f"Invalid value: {quoted}: must be greater than or equal to 0")
    if milli % _WHOLE and (name == "pods" or _extended(name)):
        yield Fault(at, f"Invalid value: {quoted}: must be an integer")


def _resource_faults(name: str, amount: Any, at: str) -> Iterator[Fault]:
    quoted, plain = json.dumps(name), "/" not in name
    standard = name in _STANDARD or name.startswith(_HUGE)
    if key_faults(name):
        for sentence in key_faults(name):
            yield Fault(at, f"Invalid value: {quoted}: {sentence}")
    elif plain and not standard:
        yield Fault(at, f"Invalid value: {quoted}: must be a standard resource type or fully qualified")
    if plain and not standard:
        yield Fault(at, f"Invalid value: {quoted}: must be a standard resource for containers")
    elif not _native(name) and not _extended(name):
        yield Fault(at, f"Invalid value: {quoted}: doesn't follow extended resource name standard")
    yield from amount_faults(name, amount, at)
    if name.startswith(_HUGE):
        yield from _page_faults(name, amount, at)


def _page_faults(name: str, amount: Any, at: str) -> Iterator[Fault]:
    """Not a whole number of pages (validateResourceQuantityHugePageValue)."""
    page, milli = parse_quantity(name.removeprefix(_HUGE)), parse_quantity(amount)
    if milli < 0 or milli % page:
        shown = canonical(amount)
        yield Fault(at, f"Invalid value: {json.dumps(shown)}: {shown} is not positive integer multiple of {name}")


def _comparison_faults(name: str, amount: Any, limit: Any, at: str) -> Iterator[Fault]:
    """More than the limit; of what cannot be overcommitted, anything but the limit."""
    exact = not _native(name) or name.startswith(_HUGE)
    if limit is None:
        if exact:
            yield Fault(f"{at}.limits", "Required value: Limit must be set for non overcommitable resources")
        return
    wanted, most = parse_quantity(amount), parse_quantity(limit)
    quoted, sentence = json.dumps(canonical(amount)), ""
    if exact and wanted != most:
        sentence = f"must be equal to {name} limit of {canonical(limit)}"
    elif wanted > most:
        sentence = f"must be less than or equal to {name} limit of {canonical(limit)}"
    if sentence:
        yield Fault(f"{at}.requests", f"Invalid value: {quoted}: {sentence}")


def _native(name: str) -> bool:
    """Whether a resource is Kubernetes' own, which may be shared and divided (IsNativeResource)."""
    return "/" not in name or "kubernetes.io/" in name


def _extended(name: str) -> bool:
    """Whether it is a device's, of which there are whole ones only (IsExtendedResourceName)."""
    return not _native(name) and not name.startswith(_QUOTA) and not key_faults(f"{_QUOTA}{name}")
