# SPDX-License-Identifier: Apache-2.0
"""What the API server does to a custom resource before and after the webhooks that change it.

First it drops and fills in fields by the CRD; then webhooks may change the object; then its metadata and its fields are
checked. Only after that do the webhooks come that refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.decoding import misreadings
from kfp_volcano.volcano.model.metadata import metadata_faults
from kfp_volcano.volcano.model.structural import GROUPS, faults, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.model.objects import Manifest
    from kfp_volcano.volcano.model.structural import Fault

__all__ = ["check", "check_spec", "read"]


def read(manifest: Manifest, webhook: str, *, changing: bool, fills: tuple[str, object] = ("", None)) -> Manifest:
    """The object as the first webhook gets it: settled. Raises InvalidError where that cannot read it.

    A webhook that may change the object (`changing`) comes before its fields are checked by their schema. `fills` is
    the field of `spec` that it fills in where it is as empty as this, so that it is no fault.
    """
    settled = settle(manifest)
    spec, (field, empty) = settled.get("spec"), fills
    if isinstance(spec, dict) and spec.get(field) == empty and not isinstance(spec.get(field), bool):
        settled["spec"] = {name: value for name, value in spec.items() if name != field}
    found = _faults(settled)
    misread = dict(misreadings(settled))
    if misread and (changing or not found):
        fields = [fault.field for fault in found] or list(misread)
        raise InvalidError(
            f'admission webhook "{webhook}" denied the request: {next(iter(misread.values()))}', fields=fields
        )
    if any(fault.wrong_type for fault in found):
        raise _invalid(settled, found)
    return settled


def check_spec(manifest: Manifest, filled_in: str) -> None:
    """Raises InvalidError where there is no `spec` for a webhook to put the first thing into that it fills in."""
    if not isinstance(manifest.get("spec"), dict):
        operation = f'add operation does not apply: doc is missing path: "/spec/{filled_in}": missing value'
        raise InvalidError(f"Internal error occurred: {operation}", fields=["spec"])


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
