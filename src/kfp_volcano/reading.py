"""Files that a user names on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.documents import parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_document"]


def read_document(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML or JSON file. Raises SpecError where it cannot be read, or is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError(f"cannot be read: {reason}", source=str(path)) from error
    return parse(text, source=str(path))
