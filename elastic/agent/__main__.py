# SPDX-License-Identifier: Apache-2.0
"""`python -m kfp_volcano.elastic.agent -- COMMAND…`: see the package.

Exit codes: the command's own; 143 after SIGTERM or SIGINT; 2 where the environment is not that of a pod of this
project, or there is no command.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import uuid
from typing import TYPE_CHECKING

from kfp_volcano.elastic.agent.agent import Agent
from kfp_volcano.elastic.generations import Member
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main"]

_PORTS = {"pytorch": names.RENDEZVOUS_PORT, "tensorflow": names.TENSORFLOW_PORT}

_NEEDED = (
    names.ENV_POD, names.ENV_POD_IP, names.ENV_TASK, names.ENV_TASK_INDEX, names.ENV_ROLE, names.ENV_FRAMEWORK,
    names.ENV_COORDINATOR, names.ENV_ELASTICITY,
)  # fmt: skip


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the command for each generation; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="kfp-volcano agent: %(message)s")
    log = logging.getLogger(__name__)
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing or not command:
        log.error("not set: %s", ", ".join(missing)) if missing else log.error("there is no command after --")
        return 2
    framework = environment[names.ENV_FRAMEWORK]
    member = Member(
        pod=environment[names.ENV_POD],
        incarnation=uuid.uuid4().hex,
        host=environment[names.ENV_POD_IP],
        role=environment[names.ENV_ROLE],
        task=environment[names.ENV_TASK],
        index=int(environment[names.ENV_TASK_INDEX]),
        port=int(environment.get(names.ENV_PORT) or _PORTS.get(framework, 0)),
        procs=int(environment.get(names.ENV_PROCS) or 1),
    )
    agent = Agent(
        argv=command,
        member=member,
        framework=framework,
        coordinator=environment[names.ENV_COORDINATOR],
        grace_s=float(json.loads(environment[names.ENV_ELASTICITY])["grace_s"]),
        env=environment,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.leave())
    return agent.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
