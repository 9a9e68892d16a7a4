# SPDX-License-Identifier: Apache-2.0
"""Seeds and random numbers: KV303, KV304 and KV602."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.networks import random_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules", "seeded"]

_SEEDS = {
    "torch.manual_seed": {"torch"},
    "torch.random.manual_seed": {"torch"},
    "numpy.random.seed": {"numpy"},
    "random.seed": {"random"},
    "tensorflow.random.set_seed": {"tensorflow"},
    "tensorflow.random.set_random_seed": {"tensorflow"},
}
_ALL = {"torch", "numpy", "random", "tensorflow"}
_SEED_ALL = ("seed_everything", "set_seed", "set_random_seed", "enable_full_determinism", "seed_all")
_BY_RANK = ("manual_seed", "manual_seed_all", "seed", "default_rng", "RandomState", "Random", "PRNGKey", *_SEED_ALL)
_PROCESS = ("os.getpid", "socket.gethostname", "uuid.uuid4", "os.urandom", "secrets.randbits", "platform.node")
_NOISE = (
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "DropPath",
)
_AUGMENTATION = (
    "AutoAugment",
    "RandAugment",
    "TrivialAugmentWide",
    "AugMix",
    "ColorJitter",
    "Mixup",
    "CutMix",
    "MixUp",
)


def rules(script: Script) -> Iterator[Finding]:
    """All findings about seeds and random numbers."""
    if not script.learns:
        return
    yield from _unseeded(script)
    yield from _by_rank(script)
    yield from _noise(script)


def seeded(script: Script, library: str) -> bool:
    """Whether the script seeds that library's own generator: `torch`, `numpy`, `random` or `tensorflow`."""
    return any(library in libraries for _, libraries in _seeds(script))


def _seeds(script: Script) -> Iterator[tuple[ast.Call, set[str]]]:
    for call, name in script.calls():
        if name in _SEEDS:
            yield call, _SEEDS[name]
        elif name.rpartition(".")[2] in _SEED_ALL and not script.flow.called(call):
            yield call, _ALL


def _unseeded(script: Script) -> Iterator[Finding]:
    made = random_weights(script)
    if not made:
        return
    first = min(made, key=lambda node: (script.flow.module(node).name != "__main__", node.lineno))
    library = "tensorflow" if _is_keras(script, first) else "torch"
    calls = [call for call, libraries in _seeds(script) if library in libraries]
    if not calls:
        yield script.found(first, "KV303", f"`{script.shown(first)}` has random weights, and nothing is seeded")
        return
    for node in made:
        function = script.flow.function(node)
        beside = [
            call
            for call in calls
            if script.flow.function(call) is function and script.flow.module(call) is script.flow.module(node)
        ]
        if len(beside) == len(calls) and min(call.lineno for call in beside) > node.lineno:
            yield script.found(node, "KV303", f"`{script.shown(node)}` comes before the seed")
            return


def _is_keras(script: Script, node: ast.Call) -> bool:
    return script.flow.dotted(node.func).startswith(("tensorflow.", "keras.", "tf_keras."))


def _by_rank(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, _ in script.calls(*_BY_RANK):
        if flow.called(call):
            continue
        values = [*call.args, *(each.value for each in call.keywords)]
        by_process = any(
            isinstance(each, ast.Call) and flow.dotted(each.func) in _PROCESS
            for value in values
            for each in ast.walk(value)
        )
        specific = any(
            each.arg == "device_specific" and isinstance(each.value, ast.Constant) and each.value.value
            for each in call.keywords
        )
        if by_process or specific or any(Tag.RANK in flow.tags(value) for value in values):
            yield script.found(call, "KV304", f"`{script.shown(call)}` seeds by rank")


def _noise(script: Script) -> Iterator[Finding]:
    """The first place of each kind in a file; there may be dozens of layers."""
    told: set[tuple[str, str]] = set()
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        augments = "transforms" in name and (last.startswith("Random") or last in _AUGMENTATION)
        key = (script.flow.module(call).shown, "augmentation" if augments else "dropout")
        if (augments or last in _NOISE) and key not in told and not _off(call):
            told.add(key)
            yield script.found(call, "KV602", f"`{script.shown(call)}` draws from the process's generator")


def _off(call: ast.Call) -> bool:
    """Whether a dropout is of probability 0."""
    return any(
        isinstance(each, ast.Constant) and each.value == 0 for each in (*call.args, *(kw.value for kw in call.keywords))
    )
