# SPDX-License-Identifier: Apache-2.0
"""The agent as one file, for images that lack this package.

::

    python -m kfp_volcano.elastic.agent.packing FILE
    python3 FILE -- COMMAND…

The second line needs Python 3.10 or later, and nothing but its standard library.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "pack"]

_PACKAGES = ("kfp_volcano", "kfp_volcano.elastic", "kfp_volcano.elastic.agent", "kfp_volcano.schemas")
_MODULES = (
    "kfp_volcano.elastic.agent.__main__",
    "kfp_volcano.elastic.agent.agent",
    "kfp_volcano.elastic.agent.command",
    "kfp_volcano.elastic.agent.environment",
    "kfp_volcano.elastic.agent.link",
    "kfp_volcano.elastic.generations",
    "kfp_volcano.schemas.names",
    "kfp_volcano.schemas.records",
    "kfp_volcano.version",
)

# In words that every Python 3 reads, to say so where it is too old.
_START = """\
import sys
if sys.version_info < (3, 10):
    sys.exit("kfp-volcano's agent needs Python 3.10 or later in this image, found %d.%d" % sys.version_info[:2])
from kfp_volcano.elastic.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def pack(destination: Path) -> None:
    """Write the agent to a file; one that is there is replaced as a whole."""
    partial = destination.with_name(f".{destination.name}.partial")
    with zipfile.ZipFile(partial, "w") as archive:
        archive.writestr("__main__.py", _START)
        for names, ending in ((_PACKAGES, "/__init__.py"), (_MODULES, ".py")):
            for name in names:
                archive.writestr(name.replace(".", "/") + ending, inspect.getsource(importlib.import_module(name)))
    partial.replace(destination)


def main(arguments: Sequence[str]) -> int:
    """Pack the agent into the one file that is named; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m kfp_volcano.elastic.agent.packing FILE", file=sys.stderr)  # noqa: T201
        return 2
    pack(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
