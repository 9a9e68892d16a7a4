# SPDX-License-Identifier: Apache-2.0
"""What a container asks for, in the words of a TrainingJob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.wording import shown
from kfp_volcano.volcano.manifests.convert.draft import CONTAINER
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from decimal import Decimal

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["read_resources"]

_DEFAULTS = {"cpu": "1", "memory": "1Gi"}
"""What a pod of a TrainingJob asks for where nothing is said."""
_SHARES = {names.VGPU_MEMORY: "memory", names.VGPU_CORES: "cores"}
_HUGEPAGES = "hugepages-"
_RDMA = "rdma/"


def read_resources(view: View, draft: Draft) -> None:
    """Read the resources of a container (core/v1 ResourceRequirements) into a role.

    A limit without a request is the request too, as in Kubernetes; cpu and memory that are limited to what is
    requested are `reserved`.
    """
    if "claims" in view:
        draft.patch.set((*CONTAINER, "resources", "claims"), view.any("claims"), view.at("claims"))
    limits, requests = _Amounts(view.map("limits")), _Amounts(view.map("requests"))
    found: dict[str, Any] = {}
    _computing(found, requests, limits, draft)
    _devices(found, requests, limits, draft)
    draft.parts["resources"] = found


class _Amounts:
    """The quantities of a mapping of resources."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.names = [name for name in view if name in view]

    def take(self, name: str, to: object = "") -> str | float | None:
        """The amount of a resource as it was written; None where there is none."""
        value = self.view.any(name, to)
        if value is None:
            return None
        self.amount(name)
        written: str | float = value
        return written

    def amount(self, name: str) -> Decimal | None:
        """The amount of a resource as a number."""
        value = self.view.peek(name)
        if value is None:
            return None
        try:
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return quantity(value)
        except ValueError:
            pass
        return refuse(self.view.at(name), f"{shown(value)} is no quantity", "for example 500m or 16Gi")


def _computing(found: dict[str, Any], requests: _Amounts, limits: _Amounts, draft: Draft) -> None:
    equal = all(
        limits.amount(name) and requests.amount(name) in (None, limits.amount(name)) for name in ("cpu", "memory")
    )
    account = requests.view.account
    for name, default in _DEFAULTS.items():
        place = draft.place("resources", name)
        asked, limit = requests.amount(name), limits.amount(name)
        if not asked and not limit:
            account.changed(
                requests.view.at(name),
                place,
                f"is not said: {default} is requested, for a gang is scheduled by what it requests",
                "say what a pod needs",
            )
            requests.take(name)
            limits.take(name)
            continue
        if asked:
            found[name] = requests.take(name, place)
            limit_place = draft.place("resources", "reserved" if equal else "limits")
            written = limits.take(name, limit_place)
            if limit and not equal:
                found.setdefault("limits", {})[name] = written
        else:
            requests.take(name)
            found[name] = limits.take(name, place)
            if not equal:
                found.setdefault("limits", {})[name] = found[name]
    if equal:
        found["reserved"] = True


def _devices(found: dict[str, Any], requests: _Amounts, limits: _Amounts, draft: Draft) -> None:
    """Everything but cpu and memory: Kubernetes wants its limit to be its request."""
    for name in dict.fromkeys(other for other in (*limits.names, *requests.names) if other not in _DEFAULTS):
        source = limits if limits.amount(name) is not None else requests
        amount = source.amount(name)
        if requests.amount(name) not in (None, amount):
            requests.view.changed(name, draft.place("resources"), "the limit is what is requested")
        if amount == 0:
            source.view.changed(name, draft.place("resources"), "asks for none")
        elif place := _device(found, name, source):
            source.take(name, draft.place("resources", *place))
        else:
            source.view.lost(name, "is no resource that a pod can be given on Volcano", "a name such as vendor.com/x")
        for other in (requests, limits):
            if other is not source:
                other.take(name, draft.place("resources"))


def _device(found: dict[str, Any], name: str, source: _Amounts) -> tuple[str, ...]:
    """Say an amount of a resource; gives where, or nothing where it cannot be said."""
    if name in (names.GPU, names.VGPU_NUMBER):
        found["gpu"] = _count(source, name)
        if name == names.VGPU_NUMBER:
            found.setdefault("gpuShare", {})
        return ("gpu",)
    if name in _SHARES:
        amount = _count(source, name)
        found.setdefault("gpuShare", {})[_SHARES[name]] = f"{amount}Mi" if name == names.VGPU_MEMORY else amount
        return ("gpuShare", _SHARES[name])
    if name.startswith(_RDMA) and "rdma" not in found:
        found["rdma"] = _count(source, name)
        if name != names.RDMA:
            found["rdmaResource"] = name
        return ("rdma",)
    if name.startswith(_HUGEPAGES):
        size = name.removeprefix(_HUGEPAGES)
        found.setdefault("hugepages", {})[size] = source.view.peek(name)
        return ("hugepages", size)
    if name == "ephemeral-storage" or ("/" in name and not name.partition("/")[0].endswith("kubernetes.io")):
        found.setdefault("extra", {})[name] = source.view.peek(name)
        return ("extra", name)
    return ()


def _count(source: _Amounts, name: str) -> int:
    amount = source.amount(name)
    if amount is None or amount % 1:
        refuse(source.view.at(name), f"{shown(source.view.peek(name))} is no whole number", "devices are counted")
    return int(amount)
