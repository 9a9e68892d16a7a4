# SPDX-License-Identifier: Apache-2.0
"""`python -m kfp_volcano.elastic.runtime -- COMMAND…`: the first process of a worker that has several.

Exit codes: that of a process that failed; 143 after SIGTERM; 2 where the environment is not that of a pod of this
project, or there is no command.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.starter import start
from kfp_volcano.errors import KfpVolcanoError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Start the command's processes; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="kfp-volcano: %(message)s")
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        sys.stderr.write("there is no command after --\n")
        return 2
    try:
        return start(command)
    except KfpVolcanoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
