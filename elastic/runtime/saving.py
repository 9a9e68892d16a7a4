# SPDX-License-Identifier: Apache-2.0
"""When training's state is saved and what it begins from: what the loop asks of checkpoints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.runtime.account import about
from kfp_volcano.elastic.runtime.checkpoints import Best, Checkpoints, Final, Saver, Together, open_store
from kfp_volcano.elastic.runtime.events import Events, Kind
from kfp_volcano.elastic.runtime.shards import to_whole
from kfp_volcano.elastic.runtime.warm_start import filled, fitting, warm_start
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.elastic.runtime.checkpoints import Manifest
    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.state import State
    from kfp_volcano.elastic.runtime.surroundings import Surroundings

__all__ = ["Saving", "Unsaved", "saving"]

_PLAN = ("size", "batch", "epochs", "seed")


class Unsaved:
    """Of a training without a job folder: it leaves nothing behind."""

    def __init__(self, here: Surroundings, state: State, events: Events) -> None:
        self._state = state
        self._events = events
        self._start = here.settings.checkpoint_from

    finished = False
    """Whether the training has left its final model behind already."""

    def restore(self) -> bool:
        """Takes over what the state is to begin with; False where that is nothing.

        Raises:
            SpecError: it is of another training or another model, or there is nothing to begin with.
            OSError: it cannot be reached.
        """
        if not self._start:
            return False
        said = warm_start(self._state, self._start, self._events)
        self._events.add(Kind.RESTORED, f"beginning with {said} in {self._start}", place=self._start)
        return True

    def finish(self, patience_s: float) -> None:
        """Leaves the final model behind, unless another worker does within that time. Raises OSError."""

    def close(self) -> None:
        """Waits until what is on its way is written."""

    def overdue(self, *, first: bool) -> bool:
        """Whether this worker thinks it is time for a checkpoint."""
        del first
        return False

    def want(self) -> None:
        """Asks for a checkpoint after the next step."""

    def agreed(self, *, everyone_leaves: bool) -> None:
        """All workers have decided that the present state is saved."""

    def logged(self, values: Mapping[str, float]) -> None:
        """The training code has logged values of the present state: if it is the best so far, it is saved."""

    def at_rest(self, *, first: bool) -> None:
        """The state is that between two steps, with all that the loop's body does after one: saves it if it is due."""

    def now(self, *, best: bool = False) -> None:
        """Saves the present state, as the best so far or not; it is written when this returns."""

    def newest(self, *, until: int) -> dict[str, Any] | None:
        """The state of the newest whole checkpoint of so many steps at most; None where there is none.

        All processes of the worker have to ask for it together.
        """
        del until
        return None

    def withdraw(self, *, beyond: int) -> None:
        """Removes the checkpoints of more steps: training went back, and nobody is to begin with them."""

    def computing(self) -> None:
        """The model and the optimizer rest until `computed`."""

    def computed(self) -> None:
        """They may change when this returns."""


class Saving(Unsaved):
    """Of one worker. The first worker writes; the others know when, so that any may be the first next.

    Args:
        here: with the settings.
        state: what is saved.
        events: where it is told.
        crew: the processes of this worker, which save and restore together.
        job_dir: the job folder.
        sync: called before a checkpoint counts: what led to it is on the disk then.
        sharded: whether the model is, over the crew: then each process writes what it has.
    """

    def __init__(
        self,
        here: Surroundings,
        state: State,
        events: Events,
        crew: Crew,
        *,
        job_dir: Path,
        sync: Callable[[], None],
        sharded: bool,
    ) -> None:
        super().__init__(here, state, events)
        self._crew = crew
        settings = here.settings
        self._every_s = settings.checkpoint_every_s
        self._sync = sync
        store = open_store(settings.checkpoint_url or job_dir / "checkpoints")
        best = Best(settings.checkpoint_best, settings.checkpoint_best_mode) if settings.checkpoint_best else None
        self._sharded = sharded and crew.size > 1
        self._checkpoints = Checkpoints(
            store,
            keep=settings.checkpoint_keep,
            owner=crew.from_first(lambda: here.owner) if self._sharded else here.owner,
            best=best,
            events=events,
            together=Together(crew.rank, crew.aside()) if self._sharded else None,
        )
        self._final = Final(job_dir / "final", owner=here.owner)
        told = events if crew.rank == 0 else Events(None, owner=here.owner)  # what is written together is told once
        self._saver = Saver(self._checkpoints, before=sync, patience_s=self._every_s, events=told)
        self._saved_at = time.monotonic()
        self._best_so_far: float | None = None
        self._wanted = self._due = self._last = self._record = False

    @property
    def finished(self) -> bool:  # type: ignore[override]
        """See above. Raises SpecError where the final model is another training's."""
        if not self._final.exists():
            return False
        manifest = self._final.manifest()
        if manifest is not None:
            self._refuse_foreign(manifest, "the final model")
        return True

    def restore(self) -> bool:
        """See above: the newest checkpoint that is whole comes first."""
        found = self._crew.from_first(self._newest)
        if found is None:
            return super().restore()
        manifest, state = found
        with fitting(f"{self._checkpoints.store.where}/{manifest.name}"):
            self._state.load_state_dict(filled(self._state, self._checkpoints, manifest, state))
        said = f"going on from the checkpoint after step {self._state.steps}"
        self._events.add(Kind.RESTORED, said, checkpoint=manifest.name)
        return True

    def _newest(self) -> tuple[Manifest, dict[str, Any]] | None:
        best = self._checkpoints.best
        manifests = self._checkpoints.manifests()
        found = best.of(manifests) if best else None
        self._best_so_far = best.value(found) if best and found else None
        if manifests:
            self._refuse_foreign(manifests[0], "checkpoints")
        return next(self._checkpoints.whole(), None)

    def finish(self, patience_s: float) -> None:
        """See above."""
        self._saver.finish()
        if self._crew.from_first(lambda: not self._final.wait(patience_s)):
            model = to_whole(self._state.model.state_dict())
            if self._crew.rank == 0:
                self._sync()
                self._final.write(model, about(self._state, final=True))

    def close(self) -> None:
        """See above."""
        self._saver.close()

    def _refuse_foreign(self, manifest: Manifest, what: str) -> None:
        """Going on with other data would feed samples twice or never; and its checkpoints would make room for ours."""
        plan = self._state.plan
        other = [
            f"{name} {manifest.about[name]!r}, here {getattr(plan, name)!r}"
            for name in _PLAN
            if name in manifest.about and manifest.about[name] != getattr(plan, name)
        ]
        if other:
            said = f"holds {what} of another training: {'; '.join(other)}"
            remedy = "give this training a folder of its own; to begin with that one's weights, set checkpoint.from"
            raise SpecError([Problem(self._checkpoints.store.where, said, remedy)], source="checkpoint")

    def overdue(self, *, first: bool) -> bool:
        """See above."""
        late = time.monotonic() - self._saved_at >= self._every_s
        return self._wanted or (first and (late or self._saver.overdue))

    def want(self) -> None:
        """See above."""
        self._wanted = True

    def agreed(self, *, everyone_leaves: bool) -> None:
        """See above."""
        self._saved_at = time.monotonic()
        self._wanted = False
        self._due, self._last = True, everyone_leaves

    def logged(self, values: Mapping[str, float]) -> None:
        """See above."""
        best = self._checkpoints.best
        if best is not None and best.better(values, self._best_so_far):
            self._best_so_far = values[best.metric]
            self._record = True

    def at_rest(self, *, first: bool) -> None:
        """See above."""
        due, last, record = self._due, self._last, self._record
        self._due = self._last = self._record = False
        if first and self._checkpoints.best is not None:
            record = self._crew.any(record)  # only one of them logs
        if first and (due or record):
            self._save(wait=last, wanted=record)

    def now(self, *, best: bool = False) -> None:
        """See above."""
        self._save(wait=True, wanted=True, best=best)

    def newest(self, *, until: int) -> dict[str, Any] | None:
        """See above."""
        self._saver.finish()
        found = self._crew.from_first(lambda: next(self._checkpoints.whole(until=until), None))
        return None if found is None else filled(self._state, self._checkpoints, *found)

    def withdraw(self, *, beyond: int) -> None:
        """See above."""
        self._saver.finish()
        self._checkpoints.withdraw(beyond=beyond)

    def computing(self) -> None:
        """See above."""
        self._saver.copy()

    def computed(self) -> None:
        """See above."""
        self._saver.copied()

    def _save(self, *, wait: bool, wanted: bool, best: bool = False) -> None:
        if wait:
            self._saver.finish()
        if self._sharded:
            if not self._crew.all(self._saver.ready(wanted=wanted)):
                self._wanted = True
                return
            state = self._state.state_dict()
        elif self._crew.rank == 0:
            state = self._state.whole()
        else:
            return
        self._wanted = not self._saver.begin(state, {**about(self._state), "best": best}, wanted=wanted)
        if wait:
            self._saver.finish()


def saving(
    here: Surroundings, state: State, crew: Crew, events: Events, *, sync: Callable[[], None], sharded: bool = False
) -> Unsaved:
    """What a training saves: all of it where there is a job folder, else nothing. The arguments are Saving's."""
    if here.job_dir is None:
        return Unsaved(here, state, events)
    return Saving(here, state, events, crew, job_dir=here.job_dir, sync=sync, sharded=sharded)
