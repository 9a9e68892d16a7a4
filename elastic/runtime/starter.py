# SPDX-License-Identifier: Apache-2.0
"""Starts a worker's processes by torchrun, and ends as the processes ended.

Torchrun starts them together, gives them a place to meet (`LOCAL_RANK`, `MASTER_ADDR` …), and starts all of them again
where one has failed. By itself it ends with 1 whatever became of them; a Job has to know a worker that left (143) and a
script that nobody need try again (2).
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from kfp_volcano.elastic.runtime.crew import BROKEN
from kfp_volcano.elastic.runtime.surroundings import Surroundings, cpu_share
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["exit_code", "start"]

_BY_SIGNAL = 128

_log = logging.getLogger(__name__)


def start(command: Sequence[str]) -> int:
    """Runs the command in as many processes as the Job's environment says, until all end; returns the exit code.

    What `PET_*` variables say goes to torchrun. SIGTERM goes to the processes, which have the Job's grace to leave.

    Raises:
        SpecError: the environment is wrong.
    """
    here = Surroundings.read(os.environ)
    threads = cpu_share(replace(here, processes=int(os.environ.get(names.ENV_PROCS, "1"))), os.environ)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # torchrun would say 1
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a wish for the training; this process would end of it
    try:
        run(parse_args(["--no-python", *command]))  # type: ignore[no-untyped-call]
    except SignalException as told:
        return _BY_SIGNAL + told.sigval
    except ChildFailedError as failed:
        _log.error("%s", failed)
        return exit_code(failure.exitcode for failure in failed.failures.values())
    return 0


def exit_code(ends: Iterable[int]) -> int:
    """The exit code that tells why a worker's processes failed; minus the signal's number for a signal.

    Those that ended only because a sibling did say nothing.
    """
    codes = [_BY_SIGNAL - code if code < 0 else code for code in ends]
    return next((code for code in codes if code != BROKEN), BROKEN)
