# SPDX-License-Identifier: Apache-2.0
"""The command line: `kfp-volcano COMMAND`, a module for each command or group of commands.

Data goes to standard output, progress and messages to standard error. Exit codes: 0 done, 1 the training failed,
2 wrong use or input, 3 the cluster could not be reached or refused, 4 the run was terminated, 130 interrupted,
141 whoever read the output has gone.
"""

from kfp_volcano.cli.commands import main

__all__ = ["main"]
