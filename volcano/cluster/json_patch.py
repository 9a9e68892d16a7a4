# SPDX-License-Identifier: Apache-2.0
"""JSON Patch as the API server applies it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jsonpatch

from kfp_volcano.errors import ConflictError, InvalidError

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["apply_patch"]


def apply_patch(manifest: Manifest, operations: Sequence[Mapping[str, Any]]) -> Manifest:
    """The patched copy of an object. Raises ConflictError where a `test` fails, InvalidError for an impossible patch.

    As the API server's library (evanphx/json-patch) does, a `replace` of a member that an object lacks adds it.
    """
    patched = copy.deepcopy(manifest)
    for operation in operations:
        patched = _apply(operation, patched)
    return patched


def _apply(operation: Mapping[str, Any], manifest: Manifest) -> Manifest:
    name, path = operation.get("op"), operation.get("path")
    try:
        return dict(jsonpatch.apply_patch(manifest, [_lenient(operation, manifest)], in_place=True))
    except jsonpatch.JsonPatchTestFailed as error:
        raise ConflictError(f"the patch's test of {path} failed: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        if name == "test":
            raise ConflictError(f"the patch's test of {path} failed: it is not there") from error
        raise InvalidError(f"the patch cannot {name} {path}: {error}") from error


def _lenient(operation: Mapping[str, Any], manifest: Manifest) -> dict[str, Any]:
    if operation.get("op") == "replace":
        parent, _ = jsonpatch.JsonPointer(operation["path"]).to_last(manifest)
        if isinstance(parent, Mapping):
            return {**operation, "op": "add"}
    return dict(operation)
