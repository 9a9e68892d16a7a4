# SPDX-License-Identifier: Apache-2.0
"""In which order samples are fed: KV203."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.script import keyword
from kfp_volcano.elastic.checking.seeds import seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules", "truthy"]

_ORDERS = {
    "torch.randperm": "torch",
    "torch.utils.data.random_split": "torch",
    "torch.utils.data.dataset.random_split": "torch",
    "random.shuffle": "random",
    "random.sample": "random",
    "numpy.random.shuffle": "numpy",
    "numpy.random.permutation": "numpy",
    "numpy.random.choice": "numpy",
}
_GENERATORS = ("Random", "default_rng", "RandomState", "Generator", "PRNGKey", "key")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about orders."""
    flow = script.flow
    if not script.learns:
        return
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        shown = f"`{script.shown(call)}`"
        if Tag.LOADER in flow.tags(call) or name in _ORDERS:
            shuffles = name in _ORDERS or (truthy(keyword(call, "shuffle")) and not script.live)
            if shuffles and keyword(call, "generator") is None and not seeded(script, _ORDERS.get(name, "torch")):
                yield script.found(call, "KV203", f"{shown} shuffles without a seed")
        elif last in ("shuffle", "permutation", "permuted") and isinstance(call.func, ast.Attribute):
            made = _maker(script, call.func.value)
            if made is not None and not made.args and not made.keywords:
                yield script.found(call, "KV203", f"{shown} draws from a generator without a seed")
            elif made is None and last == "shuffle" and _of_dataset(script, call):
                yield script.found(call, "KV203", f"{shown} shuffles without a seed")


def _of_dataset(script: Script, call: ast.Call) -> bool:
    """Whether a dataset's own `shuffle` is called, without a seed of its own or of its library."""
    if keyword(call, "seed") is not None or len(call.args) > 1 or _lists(call):
        return False
    imported = script.flow.module(call).imports.values()
    return not seeded(script, "tensorflow" if any("tensorflow" in each for each in imported) else "numpy")


def _lists(call: ast.Call) -> bool:
    """Whether what is shuffled is the argument: the owner is a generator that somebody handed in."""
    return (
        bool(call.args)
        and not isinstance(call.args[0], ast.Constant)
        and not re.search(r"buffer|size|len", ast.unparse(call.args[0]))
    )


def _maker(script: Script, owner: ast.expr) -> ast.Call | None:
    """The call that made a generator of random numbers."""
    if isinstance(owner, ast.Call):
        return owner if script.flow.dotted(owner.func).rpartition(".")[2] in _GENERATORS else None
    for target, value in script.assignments():
        if ast.unparse(target) == ast.unparse(owner) and isinstance(value, ast.Call):
            made = _maker(script, value)
            if made is not None:
                return made
    return None


def truthy(value: ast.expr | None) -> bool:
    """Whether an argument is given, and not as False; `shuffle=(sampler is None)` is no shuffling of ours."""
    return (
        value is not None
        and not (isinstance(value, ast.Constant) and not value.value)
        and not isinstance(value, ast.Compare)
    )
