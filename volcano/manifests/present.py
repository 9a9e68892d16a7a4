# SPDX-License-Identifier: Apache-2.0
"""Mappings that say only what there is to say."""

from __future__ import annotations

from typing import Any

__all__ = ["present"]


def present(**entries: Any) -> dict[str, Any]:
    """The entries that are neither None nor False nor an empty text, list or mapping, in their order."""
    return {key: value for key, value in entries.items() if value or (value == 0 and value is not False)}
