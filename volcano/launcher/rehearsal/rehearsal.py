# SPDX-License-Identifier: Apache-2.0
"""A rehearsal from beginning to end."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.volcano.launcher.rehearsal import live as live_scenario
from kfp_volcano.volcano.launcher.rehearsal import restart as restart_scenario
from kfp_volcano.volcano.launcher.rehearsal.stage import Stage
from kfp_volcano.volcano.launcher.rehearsal.verdict import RehearsalError, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.elastic.checking.codes import Finding

__all__ = ["rehearse"]

GRACE_S = 15.0


def rehearse(
    script: Path,
    arguments: Sequence[str],
    *,
    live: bool,
    findings: Sequence[Finding],
    workers: tuple[int, int],
    timeout_s: float,
    tell: Callable[[str], None],
) -> Verdict:
    """Runs a script elastically for some steps, in a temporary folder that is removed; what came out.

    Args:
        script: its folder is the working directory.
        arguments: of the script.
        live: which scenario: `Training`, or a command that is stopped and started again.
        findings: of the reading, to explain what differs.
        workers: the fewest and the most.
        timeout_s: for all of it.
        tell: for whoever waits: what goes on.
    """
    verdict, deadline = Verdict(), time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="kfp-volcano-") as folder:
        stage = Stage(
            Path(folder),
            script,
            arguments,
            strategy="live" if live else "restart",
            workers=workers,
            grace_s=GRACE_S,
            deadline=deadline,
            tell=tell,
        )
        try:
            if live:
                live_scenario.play(stage, verdict, arguments, findings, deadline)
            else:
                restart_scenario.play(stage, verdict, grace_s=GRACE_S)
        except RehearsalError as error:
            verdict.add(str(error), right=False)
        finally:
            stage.close()
    return verdict
