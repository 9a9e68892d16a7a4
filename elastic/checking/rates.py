# SPDX-License-Identifier: Apache-2.0
"""Learning rates and schedules: KV101, KV102, KV104 and KV105."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.batches import BATCH_NAME, arguments, name_of
from kfp_volcano.elastic.checking.facts import LR_NAME, TRAINING, Tag
from kfp_volcano.elastic.checking.script import keyword, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_WARMUP = re.compile(r"warm_?up", re.IGNORECASE)
_STEPS = re.compile(r"(^|_)(steps?|iters?|iterations|t_max|max_iter|num_batches|updates)($|_)", re.IGNORECASE)
_EARLIER = re.compile(r"(^|_)(old|prev|previous|last|before|from|former|initial|prior)($|_)", re.IGNORECASE)


def rules(script: Script) -> Iterator[Finding]:
    """All findings about rates and schedules."""
    yield from _changed_in_place(script)
    yield from _assigned(script)
    yield from _given(script)
    yield from _schedules(script)
    yield from _lengths(script)


def _changed_in_place(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for node in script.nodes(ast.AugAssign):
        name = name_of(script, node.target)
        if not isinstance(node.op, (ast.Mult, ast.Div, ast.Pow)):
            continue
        if LR_NAME.search(name):
            if isinstance(node.target, ast.Subscript) or flow.runs_in_loop(node) or _ratio(script, node.value):
                yield script.found(node, "KV101", f"`{script.shown(node)}` changes the rate that it finds")
            elif Tag.WORLD in flow.tags(node.value):
                yield script.found(node, "KV102", f"`{script.shown(node)}` scales the rate by the number of workers")
        elif _WARMUP.search(name) and Tag.WORLD in flow.tags(node.value):
            yield script.found(node, "KV102", f"`{script.shown(node)}` scales the warm-up by the number of workers")


def _assigned(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for target, value in script.assignments():
        name = name_of(script, target)
        tags = flow.tags(value.body if isinstance(value, ast.Lambda) else value)
        shown = f"`{script.shown(target)} = {script.shown(value)}`"
        if LR_NAME.search(name):
            again = _scaled(value, target) and (flow.runs_in_loop(target) or _ratio(script, value))
            if again or Tag.SCALED_LR in tags:
                yield script.found(target, "KV101", f"{shown} computes the rate from the one before")
            elif Tag.WORLD in tags:
                yield script.found(target, "KV102", f"{shown} follows the number of workers")
        elif _WARMUP.search(name) and Tag.WORLD in tags:
            yield script.found(target, "KV102", f"{shown} follows the number of workers")
    yield from _variables(script)


def _variables(script: Script) -> Iterator[Finding]:
    """Rates that are variables of TensorFlow: `rate.assign(…)`, `set_value(rate, …)`."""
    for call, name in script.calls("assign", "set_value"):
        if not call.args:
            continue
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        rate, value = (call.args[0] if name.endswith("set_value") else owner), call.args[-1]
        if rate is None or not LR_NAME.search(name_of(script, rate)):
            continue
        if _scaled(value, rate):
            yield script.found(call, "KV101", f"`{script.shown(call)}` computes the rate from the one before")
        elif Tag.WORLD in script.flow.tags(value):
            yield script.found(call, "KV102", f"`{script.shown(call)}` follows the number of workers")


def _scaled(value: ast.AST, rate: ast.AST) -> bool:
    """Whether a value is a multiple, or a power, of a rate."""
    scaled = [each for each in ast.walk(value) if _scales(each)]
    return any(
        ast.unparse(part) == ast.unparse(rate)
        for each in scaled
        for part in ast.walk(each)
        if isinstance(part, ast.expr)
    )


def _scales(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.Pow))


def _ratio(script: Script, value: ast.AST) -> bool:
    """Whether a value divides by a number of workers, or by something that was before."""
    for each in ast.walk(value):
        if isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Div, ast.FloorDiv)):
            if Tag.WORLD in script.flow.tags(each.right) or any(_EARLIER.search(name) for name in names_in(each.right)):
                return True
        elif isinstance(each, ast.Name) and re.search(r"ratio|factor|scale", each.id):
            known = [
                part for target, part in script.assignments() if isinstance(target, ast.Name) and target.id == each.id
            ]
            if any(part is not value and _ratio(script, part) for part in known):
                return True
    return False


def _given(script: Script) -> Iterator[Finding]:
    """Arguments of calls."""
    for call, name in script.calls():
        for argument, value in arguments(script, call, name):
            tags, shown = _of_argument(script, value), f"`{argument}={script.shown(value)}`"
            if argument == "lr" and Tag.SCALED_LR in tags:
                yield script.found(value, "KV101", f"{shown} computes the rate from the one before")
            if Tag.WORLD not in tags or Tag.SCALED_LR in tags:
                continue
            told = name_of(script, value) if isinstance(value, (ast.Name, ast.Attribute)) else ""
            named = LR_NAME.search(argument) or _WARMUP.search(argument)
            if named and not (LR_NAME.search(told) or _WARMUP.search(told)):
                yield script.found(value, "KV102", f"{shown} follows the number of workers")


def _of_argument(script: Script, value: ast.expr) -> Tag:
    """What a value is, or what it returns where it is a function."""
    flow = script.flow
    if isinstance(value, ast.Lambda):
        return flow.tags(value.body)
    tags = flow.tags(value)
    if isinstance(value, ast.Name):
        for function in flow.functions.get(value.id, []):
            tags |= flow.result(function)
    return tags


def _schedules(script: Script) -> Iterator[Finding]:
    flow = script.flow
    constant = any(
        Tag.DIVIDED in flow.tags(value)
        for target, value in script.assignments()
        if BATCH_NAME.search(name_of(script, target))
    )
    for call, _ in script.calls("step"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if owner is None or Tag.SCHEDULER not in flow.tags(owner):
            continue
        shown = f"`{script.shown(call)}`"
        if script.live:
            counted = any(holds and Tag.COUNTED in flow.tags(test) for test, holds in flow.conditions(call)) or any(
                not holds and Tag.COUNTED in flow.tags(test) for test, holds in flow.conditions(call)
            )
            if not (counted and _kept(script, owner)):
                yield script.found(call, "KV104", f"{shown} counts calls of this worker")
            continue
        loop = script.training_loop(call)
        if loop is None or constant or not script.distributed:
            continue
        inner = [each for each in ast.walk(loop) if each is not loop and isinstance(each, (ast.For, ast.While))]
        if not any(script.trains(each) for below in inner for each in ast.walk(below) if isinstance(each, ast.Call)):
            yield script.found(call, "KV104", f"{shown} counts steps, whose samples follow the number of workers")


def _kept(script: Script, owner: ast.AST) -> bool:
    """Whether a schedule is among a Training's `state`."""
    name = ast.unparse(owner)
    for call, called in script.calls():
        state = keyword(call, "state") if called in TRAINING else None
        if state is not None and (
            name in {ast.unparse(each) for each in ast.walk(state) if isinstance(each, ast.expr)}
            or isinstance(state, ast.Name)
        ):
            return True
    return False


def _lengths(script: Script) -> Iterator[Finding]:
    flow = script.flow
    if not (script.live or script.distributed):
        return
    for call, name in script.calls():
        tags = flow.tags(call)
        if Tag.LOADER in tags or Tag.SAMPLER in tags:
            drops = keyword(call, "drop_last")
            if isinstance(drops, ast.Constant) and drops.value is True:
                yield script.found(call, "KV105", "`drop_last=True` drops samples, others at each size")
        elif name == "len" and call.args and Tag.LOADER in flow.tags(call.args[0]) and _counts_steps(script, call):
            yield script.found(call, "KV105", f"`{script.shown(call)}` counts the batches of one worker")
    for target, value in script.assignments():
        tags = flow.tags(value)
        if _STEPS.search(name_of(script, target)) and Tag.DIVIDED in tags and "len" in names_in(value) | {""}:
            yield script.found(
                target, "KV105", f"`{script.shown(target)} = {script.shown(value)}` counts steps by the size"
            )


def _counts_steps(script: Script, call: ast.Call) -> bool:
    """Whether the length of a loader becomes a number of steps: of a schedule, or under such a name."""
    for each in script.flow.ancestors(call):
        if isinstance(each, ast.Call) and Tag.SCHEDULER in script.flow.tags(each):
            return True
        if isinstance(each, ast.keyword) and each.arg and _STEPS.search(each.arg):
            return True
        if isinstance(each, ast.Assign):
            return any(_STEPS.search(name_of(script, target)) for target in each.targets)
        if isinstance(each, ast.stmt):
            return False
    return False
