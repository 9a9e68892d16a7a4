# SPDX-License-Identifier: Apache-2.0
"""What befalls the autoscaler from outside: outages, partitions, clocks that jump, processes that stand still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.objects import key_of

if TYPE_CHECKING:
    from storms.program import Program
    from storms.storm import Storm

__all__ = ["Weather"]

_JUMPS_S = (-300.0, -60.0, -20.0, -5.0, -1.0, 1.0, 5.0, 20.0, 60.0, 300.0)
_AGREED_S = 1.0
"""By how much clocks may differ when all is well."""


class Weather:
    """All that is not an answer to a request."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._random = storm.random
        self._over = False
        self._mild = storm.random.random() < 0.15
        """Whether nothing happens: then laws must hold all the more."""

    def begin(self) -> None:
        """From now on."""
        if not self._mild:
            self._later()

    def heal(self) -> None:
        """All is well again."""
        storm = self._storm
        self._over = True
        storm.faults.on = False
        storm.down_until = 0.0
        for program in [*storm.replicas.all, *storm.people.programs]:
            program.cut_until = program.stalled_until = 0.0
            program.jumped_at = storm.now
            program.skew_s = max(-_AGREED_S, min(_AGREED_S, program.skew_s))
        storm.kubelet.heal()

    def _later(self) -> None:
        self._storm.at(self._random.uniform(5.0, 60.0), self._happen)

    def _happen(self) -> None:
        if self._over:
            return
        kinds = {
            self._outage: 1, self._partition: 2, self._jump: 3, self._stall: 2, self._kill: 2, self._node: 2,
            self._images: 1, self._half: 3, self._volcano: 2,
        }  # fmt: skip
        self._random.choices(list(kinds), list(kinds.values()))[0]()
        self._later()

    def _some(self) -> Program | None:
        programs = [*self._storm.replicas.alive, *(each for each in self._storm.people.programs if each.alive)]
        return self._random.choice(programs) if programs else None

    def _outage(self) -> None:
        """The API server answers nobody."""
        seconds = self._random.choice([1.0, 10.0, 45.0, 120.0])
        self._storm.down_until = self._storm.now + seconds
        self._tell("outage", f"the API server is away for {seconds:.0f} s")

    def _partition(self) -> None:
        """It answers one process not."""
        program, seconds = self._some(), self._random.choice([1.0, 10.0, 45.0, 120.0])
        if program:
            program.cut_until = self._storm.now + seconds
            self._tell("partition", f"{program.name} is cut off for {seconds:.0f} s")

    def _jump(self) -> None:
        program, seconds = self._some(), self._random.choice(_JUMPS_S)
        if program:
            program.jumped_at = self._storm.now
            program.skew_s = seconds if self._random.random() < 0.7 else 0.0
            self._tell("clock jump", f"the clock of {program.name} is off by {program.skew_s:.0f} s")

    def _stall(self) -> None:
        program, seconds = self._some(), self._random.choice([2.0, 15.0, 35.0, 90.0])
        if program:
            program.stalled_until = self._storm.now + seconds
            self._tell("stall", f"{program.name} stands still for {seconds:.0f} s")

    def _kill(self) -> None:
        program = self._some()
        if program:
            program.kill()
            self._storm.killed += 1
            self._tell("kill", f"{program.name} is killed")

    def _node(self) -> None:
        self._storm.cluster.trouble()

    def _images(self) -> None:
        """For a while pods get a node, and some of them never run."""
        self._storm.kubelet.images_broken = not self._storm.kubelet.images_broken
        self._tell("images", f"images are {'away' if self._storm.kubelet.images_broken else 'there again'}")

    def _volcano(self) -> None:
        seconds = self._random.choice([5.0, 20.0, 60.0])
        self._storm.kubelet.away_until = self._storm.now + seconds
        self._tell("Volcano away", f"Volcano is away for {seconds:.0f} s")

    def _half(self) -> None:
        """A status that is not there, or only half, for a while."""
        store = self._storm.store
        pods, groups = store.list("Pod")[0], store.list("PodGroup")[0]
        if pods and self._random.random() < 0.6:
            for pod in self._random.sample(pods, min(3, len(pods))):
                self._storm.kubelet.strip(pod)
            self._tell("half a pod's status", "")
        elif groups:
            self._blank(self._random.choice(groups))

    def _blank(self, group: dict[str, Any]) -> None:
        """A PodGroup of which only the phase is written yet, or nothing of one that nobody has looked at."""
        phase = (group.get("status") or {}).get("phase")
        status = {} if phase in {None, "Pending"} else {"phase": phase}
        self._storm.store.revise(
            "PodGroup", key_of(group), group["metadata"]["uid"], lambda current: {**current, "status": status}
        )
        self._tell("no PodGroup status", "")

    def _tell(self, what: str, words: str) -> None:
        self._storm.count(what)
        if words:
            self._storm.say(words)
