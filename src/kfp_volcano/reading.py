# SPDX-License-Identifier: Apache-2.0
"""Files that a user names on the command line; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.documents import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_document", "read_text"]

_STANDARD_INPUT = Path("-")


def read_text(path: Path) -> str:
    """The text of a file, its lines ended as Python has it. Raises SpecError where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == _STANDARD_INPUT else path.read_bytes()
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except IsADirectoryError as error:
        raise SpecError(f"is a folder: name its files, {path}/*.yaml for example", source=str(path)) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except UnicodeDecodeError as error:
        raise SpecError("cannot be read: it is not UTF-8 text", source=str(path)) from error


def read_document(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML or JSON file. Raises SpecError where it cannot be read, or is none."""
    return parse(read_text(path), source=str(path))
