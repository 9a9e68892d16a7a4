# SPDX-License-Identifier: Apache-2.0
"""Where a field is, for a JSON Patch: JSON Pointers (RFC 6901)."""

from __future__ import annotations

__all__ = ["pointer"]


def pointer(*keys: str) -> str:
    """The pointer to what these keys lead to, e.g. a label, in whose key `/` has to be escaped."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
