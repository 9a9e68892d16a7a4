# SPDX-License-Identifier: Apache-2.0
"""Two replicas of the autoscaler, each restarted a while after it died, with nothing but what the cluster holds."""

from __future__ import annotations

import itertools
import traceback
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE
from storms.policies import Watched, policy_of
from storms.program import Program

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.policy import Policy
    from storms.storm import Storm

__all__ = ["Replicas"]

COUNT = 2
_AGAIN_S = 2.0
"""Before an actor whose Fleet has ended begins anew."""


class Replicas:
    """Whatever runs of them, and ever ran."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.all: list[Program] = []
        self._numbers = itertools.count(COUNT)
        self._ids = itertools.count(1)
        self._policies: dict[str, Policy] = {}

    @property
    def alive(self) -> list[Program]:
        """Those that run."""
        return [program for program in self.all if program.alive]

    def start(self) -> None:
        """All of them."""
        for queue in self._storm.cluster.queues:
            self._policies[queue] = policy = policy_of(self._storm.random)
            self._storm.say(f"{queue} is led by {policy}")
        for number in range(COUNT):
            self._start(f"autoscaler-{number}", 0.0)

    def _start(self, name: str, skew_s: float) -> None:
        program = Program(self._storm, name, self._run)
        program.skew_s = skew_s
        self.all.append(program)
        self._storm.say(f"{name} starts")
        program.start()
        self._storm.at(1.0, lambda: self._mourn(program))

    def _mourn(self, program: Program) -> None:
        """Start it again some time after its death: in its place, or under another name."""
        if program.alive:
            self._storm.at(1.0, lambda: self._mourn(program))
            return
        again = self._storm.random.random() < 0.5
        name = program.name if again else f"autoscaler-{next(self._numbers)}"
        self._storm.at(self._storm.random.uniform(0.5, 30.0), lambda: self._start(name, program.skew_s))

    def _run(self, program: Program) -> None:
        """As the actor does: again and again."""
        while True:
            fleet = Fleet(
                program.cluster,
                queues=lambda index: [queue for queue in index.queues if queue in self._policies],
                policies=lambda queue: Watched(self._policies[queue], program),
                identity=program.name,
                home=SYSTEM_NAMESPACE,
                recorders=[_Listener(self._storm, program.name)],
                clock=program.clock,
                new_id=lambda: f"{program.name}-{next(self._ids)}",
            )
            try:
                fleet.run()
            except ClusterError as error:
                self._storm.say(f"{program.name}: {error}")
                self._storm.count("fleet ended")
            self._storm.turns.sleep(_AGAIN_S)


class _Listener:
    """Is told of turns that failed: for want of an answer they may, and for nothing else."""

    def __init__(self, storm: Storm, name: str) -> None:
        self._storm = storm
        self._name = name

    def decided(self, *_: object, **__: object) -> None: ...

    def resized(self, *_: object) -> None: ...

    def reranked(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...

    def failed(self, queue: str, error: Exception) -> None:
        self._storm.count("turn failed")
        if not isinstance(error, ClusterError):
            self._storm.broken(f"{self._name}, {queue}: {''.join(traceback.format_exception(error))}")
