# SPDX-License-Identifier: Apache-2.0
"""How many samples a step has: KV103 and KV106."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.data import sharders
from kfp_volcano.elastic.checking.evaluating import for_evaluation
from kfp_volcano.elastic.checking.facts import TRAINING, Tag
from kfp_volcano.elastic.checking.script import keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["BATCH_NAME", "arguments", "name_of", "rules"]

BATCH_NAME = re.compile(
    r"(^|_)(batch|bs|bsz|batch_?size|micro_?batch(_size)?|train_batch_size)($|_(size|global|total|all))$"
    r"|(^|_)(samples|examples|sequences|images|items|rows|records|tokens)_(per|a)_(step|update|iteration|batch)$",
    re.IGNORECASE,
)
_POSITION = re.compile(
    r"(^|_)(samples?|seen|cursor|positions?|pos|consumed|offset|images|examples|sequences|processed|done)($|_)",
    re.IGNORECASE,
)
_PER_WORKER = ("per_device_train_batch_size", "per_gpu_train_batch_size", "train_micro_batch_size_per_gpu")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about the batch."""
    yield from _named(script)
    yield from _given(script)
    yield from _cut(script)
    if not script.live:
        yield from _each_workers(script)


def name_of(script: Script, target: ast.AST) -> str:
    """What a target is called: a name, an attribute, or a key."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute):
        return target.attr
    return script.flow.text(target.slice) if isinstance(target, ast.Subscript) else ""


def arguments(script: Script, call: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call with their names, as far as those matter."""
    for each in call.keywords:
        yield each.arg or "", each.value
    if call.args and ".keras." in name and Tag.OPTIMIZER in script.flow.tags(call):
        yield "learning_rate", call.args[0]
    if len(call.args) > 1:
        tags = script.flow.tags(call)
        second = "lr" if Tag.OPTIMIZER in tags else "batch_size" if Tag.LOADER in tags else ""
        yield "lr_lambda" if name.endswith("LambdaLR") else second, call.args[1]


def _named(script: Script) -> Iterator[Finding]:
    """What is called a batch: names, attributes, keys, and functions by what they return."""
    flow = script.flow
    for node in script.nodes(ast.AugAssign):
        grows = isinstance(node.op, ast.Mult) and Tag.WORLD in flow.tags(node.value)
        if grows and BATCH_NAME.search(name_of(script, node.target)):
            yield script.found(node, "KV103", f"`{script.shown(node)}` scales the batch by the number of workers")
    for target, value in script.assignments():
        if BATCH_NAME.search(name_of(script, target)):
            yield from _batch(script, target, value, f"`{script.shown(target)} = {script.shown(value)}`")
    for result in script.nodes(ast.Return):
        function = flow.function(result)
        if not isinstance(function, ast.FunctionDef) or result.value is None or not BATCH_NAME.search(function.name):
            continue
        if not (BATCH_NAME.search(name_of(script, result.value)) or _told_by_callers(script, function)):
            yield from _batch(script, result, result.value, f"`{script.shown(result)}` of `{function.name}`")


def _told_by_callers(script: Script, function: ast.FunctionDef) -> bool:
    """Whether what a function returns is called a batch where it is called, and told there."""
    for call in script.flow.callers(function):
        holder = script.flow.parent(call)
        targets = holder.targets if isinstance(holder, ast.Assign) else []
        names = [name_of(script, each) for each in targets] or [getattr(holder, "arg", None) or ""]
        if any(BATCH_NAME.search(name) for name in names):
            return True
    return False


def _given(script: Script) -> Iterator[Finding]:
    """Arguments of calls."""
    for call, name in script.calls():
        for argument, value in arguments(script, call, name):
            if not BATCH_NAME.search(argument) or Tag.SCALED_LR in script.flow.tags(value):
                continue
            told = name_of(script, value) if isinstance(value, (ast.Name, ast.Attribute)) else ""
            if not (BATCH_NAME.search(told) and name not in TRAINING):
                yield from _batch(script, value, value, f"`{argument}={script.shown(value)}`")


def _batch(script: Script, node: ast.AST, value: ast.AST, shown: str) -> Iterator[Finding]:
    tags = script.flow.tags(value)
    if Tag.WORLD not in tags:
        return
    if Tag.DIVIDED not in tags or script.live:
        if not _whole_again(script, value):
            yield script.found(node, "KV103", f"{shown} follows the number of workers")
    elif not _minds_remainder(script):
        yield script.found(node, "KV106", f"{shown} drops what the number of workers does not divide")


def _minds_remainder(script: Script) -> bool:
    """Whether the script deals with a batch that the number of workers does not divide."""
    return any(
        isinstance(each.op, ast.Mod) and Tag.WORLD in script.flow.tags(each.right) for each in script.nodes(ast.BinOp)
    ) or any(
        Tag.WORLD in script.flow.tags(call.args[-1])
        for call, _ in script.calls("divmod", "ceil", "array_split")
        if call.args
    )


def _whole_again(script: Script, value: ast.AST) -> bool:
    """Whether a share is multiplied back: `(GLOBAL // world) * world`."""
    if isinstance(value, ast.expr):
        value = script.known(value)
    return isinstance(value, ast.BinOp) and any(
        Tag.DIVIDED in script.flow.tags(each) for each in (value.left, value.right)
    )


def _cut(script: Script) -> Iterator[Finding]:
    """A position that moves by samples for each worker: `seen += 32 * world`, `order[at : at + 32 * world]`."""
    flow = script.flow
    moved = [
        (node, node.value)
        for node in script.nodes(ast.AugAssign)
        if isinstance(node.op, ast.Add) and _POSITION.search(name_of(script, node.target))
    ]
    widths = [
        (node, node.slice.upper.right)
        for node in script.nodes(ast.Subscript)
        if isinstance(node.slice, ast.Slice)
        and isinstance(node.slice.upper, ast.BinOp)
        and isinstance(node.slice.upper.op, ast.Add)
        and Tag.RANK not in flow.tags(node.slice.lower) | flow.tags(node.slice.upper)
    ]
    for node, width in (*moved, *widths):
        made = script.known(width)
        product = isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult)
        each_workers = flow.tags(width) & (Tag.WORLD | Tag.DIVIDED | Tag.RANK) == Tag.WORLD
        named = BATCH_NAME.search(name_of(script, width))  # told where it is made
        if product and each_workers and not named and not _whole_again(script, made):
            yield script.found(node, "KV103", f"`{script.shown(node)}` takes samples for each worker")


def _each_workers(script: Script) -> Iterator[Finding]:
    """A size that is each worker's own, of a loader whose samples are shared out: the batch is as many times that."""
    if any(_true(keyword(call, "split_batches")) for call, _ in script.calls()):
        return  # accelerate: the loader's batch is the global one
    flow = script.flow
    shared = any(True for _ in sharders(script))
    for call, _ in script.calls():
        if Tag.LOADER in flow.tags(call) and not for_evaluation(script, call):
            sampler = keyword(call, "sampler", "batch_sampler")
            size = keyword(call, "batch_size") or (call.args[1] if len(call.args) > 1 else None)
            unpacked = [each.value for each in call.keywords if each.arg is None]
            by_rank = any(Tag.SAMPLER in flow.tags(each) for each in (sampler, *unpacked))
            if size is not None and (by_rank or (shared and _true(keyword(call, "shuffle")))):
                yield from _fixed_share(script, size, "batch_size")
        for each in call.keywords:
            if each.arg in _PER_WORKER:
                yield from _fixed_share(script, each.value, each.arg)


def _fixed_share(script: Script, size: ast.expr, argument: str) -> Iterator[Finding]:
    if not script.flow.tags(size) & (Tag.WORLD | Tag.DIVIDED):
        shown = f"`{argument}={script.shown(size)}`"
        yield script.found(size, "KV103", f"{shown} is for each worker, so that a step has as many times that")


def _true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True
