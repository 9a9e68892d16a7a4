"""What the API server does to a custom resource before and after the webhooks that change it.

First it drops and fills in fields by the CRD; then webhooks may change the object; then its metadata and its fields are
checked. Only after that do the webhooks come that refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.metadata import metadata_faults
from kfp_volcano.volcano.model.structural import GROUPS, faults, overflows, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.model.objects import Manifest
    from kfp_volcano.volcano.model.structural import Fault

__all__ = ["check", "read"]


def read(manifest: Manifest, webhook: str, *, fills: tuple[str, object] = ("", None)) -> Manifest:
    """The object as the first webhook gets it: settled. Raises InvalidError where no typed program could read it.

    `fills` is the field of `spec` that the webhook fills in where it is as empty as this, so that it is no fault.
    """
    settled = settle(manifest)
    spec, (field, empty) = settled.get("spec"), fills
    if isinstance(spec, dict) and spec.get(field) == empty and not isinstance(spec.get(field), bool):
        settled["spec"] = {name: value for name, value in spec.items() if name != field}
    found = _faults(settled)
    if any(fault.wrong_type for fault in found):
        raise _invalid(settled, found)
    too_large = list(overflows(settled))
    if too_large:
        raise InvalidError(
            f'admission webhook "{webhook}" denied the request: json: cannot unmarshal number into Go value of type'
            f" int32: {', '.join(too_large)}",
            fields=too_large,
        )
    return settled


def check(manifest: Manifest) -> None:
    """Raises InvalidError with everything that metadata rules and the CRD's schema refuse."""
    found = _faults(manifest)
    if found:
        raise _invalid(manifest, found)


def _faults(manifest: Manifest) -> list[Fault]:
    return [*metadata_faults(manifest.get("metadata")), *faults(manifest)]


def _invalid(manifest: Manifest, found: Sequence[Fault]) -> InvalidError:
    kind = manifest["kind"]
    listed = str(found[0]) if len(found) == 1 else f"[{', '.join(map(str, found))}]"
    metadata = manifest.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return InvalidError(f'{kind}.{GROUPS[kind]} "{name}" is invalid: {listed}', fields=[fault.field for fault in found])
