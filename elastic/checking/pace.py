# SPDX-License-Identifier: Apache-2.0
"""How often a script saves: KV307."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.saving import saves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["each_step", "rules"]

_PERIODIC = (ast.Mod,)


def rules(script: Script) -> Iterator[Finding]:
    """Findings about how often checkpoints are written."""
    for call in saves(script):
        behind = script.flow.dotted(call.func).endswith("async_save")
        memory = any("BytesIO" in ast.unparse(script.known(each)) for each in call.args)
        if not (behind or memory) and each_step(script, call) and _unasked(script, call):
            yield script.found(call, "KV307", f"`{script.shown(call)}` holds up every step")


def _unasked(script: Script, call: ast.Call, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a call depends on nothing but ranks, up to the loop that it runs in."""
    flow = script.flow
    if any(Tag.RANK not in flow.tags(test) for test, _ in flow.conditions(call)):
        return False
    function = flow.function(call)
    if flow.loops(call) or function is None or function in seen:
        return bool(flow.loops(call))
    return any(_unasked(script, each, seen | {function}) for each in flow.callers(function))


def each_step(script: Script, call: ast.Call, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a call runs with every gradient: in the innermost loop, under no condition but one on ranks or a path."""
    flow = script.flow
    for test, _ in flow.conditions(call):
        counts = any(isinstance(each, ast.BinOp) and isinstance(each.op, _PERIODIC) for each in ast.walk(test))
        timed = any(isinstance(each, (ast.Call, ast.BinOp)) and "time" in ast.unparse(each) for each in ast.walk(test))
        if counts or timed:
            return False
    loops = flow.loops(call)
    if loops:
        inner = [each for each in ast.walk(loops[0]) if each is not loops[0] and isinstance(each, (ast.For, ast.While))]
        steps = [each for below in inner for each in ast.walk(below) if isinstance(each, ast.Call)]
        updates = any(
            Tag.OPTIMIZER in _owner(script, each) and each.func.attr == "step"
            for each in steps
            if isinstance(each.func, ast.Attribute)
        )
        trains = any(script.trains(each) for each in ast.walk(loops[0]) if isinstance(each, ast.Call))
        return trains and not updates
    function = flow.function(call)
    if function is None or function in seen:
        return False
    return any(each_step(script, each, seen | {function}) for each in flow.callers(function))


def _owner(script: Script, call: ast.Call) -> Tag:
    return script.flow.tags(call.func.value) if isinstance(call.func, ast.Attribute) else Tag.NONE
