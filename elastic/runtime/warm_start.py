# SPDX-License-Identifier: Apache-2.0
"""Beginning with a state that was saved: by this training, or by another one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, load_final, open_store
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.runtime.checkpoints import Manifest
    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.state import State

__all__ = ["filled", "fitting", "warm_start"]


def filled(state: State, checkpoints: Checkpoints, manifest: Manifest, found: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint holds, for this process."""
    return found if manifest.layout == "whole" else state.filled(found, partial(checkpoints.fill, manifest))


def warm_start(state: State, place: str, events: Events) -> str:
    """Begins with the weights of another training: the newest whole checkpoint, or the final model, at a path or URL.

    Of a checkpoint the model, the optimizer and all further state are taken, of a final model that alone; the data
    begins anew. Returns what it was.

    Raises:
        SpecError: there is neither, or it is of another model.
        OSError: the place cannot be reached.
    """
    store = open_store(place)
    with fitting(place):
        checkpoints = Checkpoints(store, keep=1, owner="", events=events)
        for manifest, found in checkpoints.whole():
            state.warm_start(filled(state, checkpoints, manifest, found))
            return f"the checkpoint {manifest.name}"
        model = load_final(store)
        if model is None:
            remedy = "the folder of a training's checkpoints or its final model"
            problem = Problem("checkpoint.from", f"there is nothing whole to begin with at {place}", remedy)
            raise SpecError([problem], source="checkpoint")
        state.warm_start({"model": model})
        return "the final model"


@contextmanager
def fitting(place: str) -> Iterator[None]:
    """A state that does not fit the objects it is loaded into is a mistake of the user's."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        remedy = "train what it is of, or give this training a folder of its own"
        problem = Problem(place, f"is not of this script's model, optimizer and state: {error}", remedy)
        raise SpecError([problem], source="checkpoint") from error
