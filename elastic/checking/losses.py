# SPDX-License-Identifier: Apache-2.0
"""How the losses of workers become one: KV508."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.batches import BATCH_NAME, name_of
from kfp_volcano.elastic.checking.data import of_a_batch
from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.script import keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_CRITERION = re.compile(
    r"(^|[._])(cross_entropy|nll_loss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|kl_div|bce\w*)$|entropy|Loss$"
)
_UNEVEN = ("tensor_split", "array_split", "chunk")
_MEANS = ("mean", "nanmean")
_AVERAGES = ("DistributedDataParallel", "DDP", "fully_shard", "FSDP", "FullyShardedDataParallel")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about losses."""
    if script.live:
        yield from _handed_to_training(script)
    else:
        yield from _mean_of_means(script)


# ------------------------------------------------------------------ Training weights by shares itself


def _handed_to_training(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, _ in script.calls("step"):
        owner = flow.tags(call.func.value) if isinstance(call.func, ast.Attribute) else Tag.NONE
        if Tag.TRAINING not in owner or not call.args:
            continue
        for part in _made_of(script, call.args[0]):
            if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Div, ast.Mult)):
                if Tag.WORLD in flow.tags(part.right) | flow.tags(part.left):
                    yield script.found(part, "KV508", f"`{script.shown(part)}` weights what step() weights")
            elif isinstance(part, ast.Call) and _summed(script, part):
                yield script.found(
                    part, "KV508", f"`{script.shown(part)}` is a sum, and step() takes a mean over the share"
                )


def _made_of(script: Script, value: ast.expr, depth: int = 4) -> Iterator[ast.expr]:
    """The expressions of a loss: its terms and factors, through names and functions of the script."""
    yield value
    sources: list[ast.expr]
    if isinstance(value, ast.BinOp):
        sources, depth = [value.left, value.right], depth + 1
    elif not depth:
        return
    elif isinstance(value, ast.Name):
        sources = _bound(script, value)
    elif isinstance(value, ast.Call):
        scaled = script.flow.dotted(value.func).rpartition(".")[2] == "scale"  # of a GradScaler
        sources = [*_returned(script, value), *(value.args if scaled else ())]
    else:
        return
    for each in sources:
        yield from _made_of(script, each, depth - 1)


def _bound(script: Script, name: ast.Name) -> list[ast.expr]:
    """What a name is bound to in its function."""
    function = script.flow.function(name)
    return [
        value
        for target, value in script.assignments()
        if isinstance(target, ast.Name) and target.id == name.id and script.flow.function(target) is function
    ]


def _returned(script: Script, call: ast.Call) -> list[ast.expr]:
    """What a function of the script returns."""
    return [
        each.value
        for called in script.flow.called(call)
        for each in ast.walk(called)
        if isinstance(each, ast.Return) and each.value is not None and script.flow.function(each) is called
    ]


def _summed(script: Script, call: ast.Call) -> bool:
    """Whether a criterion adds up the losses of its samples."""
    made = call
    if isinstance(call.func, (ast.Name, ast.Attribute)):
        for target, value in script.assignments():
            if ast.unparse(target) == ast.unparse(call.func) and isinstance(value, ast.Call):
                made = value
    named = bool(_CRITERION.search(script.flow.dotted(made.func)))
    return named and script.flow.text(keyword(made, "reduction")) == "sum" and not _divided(script, call)


def _divided(script: Script, call: ast.Call) -> bool:
    """Whether a sum is divided by what may be the number of the share's samples, at once or under its name.

    It is not where the divisor is written down, or called a batch or in capitals: that is the same for all shares.
    """
    statement = script.flow.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {ast.unparse(each) for each in targets}
    divisors = [
        each.right
        for each in script.nodes(ast.BinOp)
        if isinstance(each.op, ast.Div)
        and (call in ast.walk(each.left) or any(name in ast.unparse(each.left) for name in names))
    ]
    divisors += [
        each.value
        for each in script.nodes(ast.AugAssign)
        if isinstance(each.op, ast.Div) and ast.unparse(each.target) in names
    ]
    return any(not _same_for_all(script, each) for each in divisors)


def _same_for_all(script: Script, divisor: ast.expr) -> bool:
    name = name_of(script, divisor)
    return isinstance(divisor, ast.Constant) or bool(name and (name.isupper() or BATCH_NAME.search(name)))


# ------------------------------------------------------------------ by hand


def _mean_of_means(script: Script) -> Iterator[Finding]:
    """A batch cut into parts that may be of unequal size, whose means DDP averages."""
    if not any(True for _ in script.calls(*_AVERAGES)) or _weighted(script) or _equal_parts(script):
        return
    for node in script.nodes(ast.Subscript):
        if _may_be_uneven(script, node) and of_a_batch(script, node, node.value):
            shown = f"`{script.shown(node)}`"
            yield script.found(node, "KV508", f"{shown} has not the same size on all workers, and means are averaged")
            return


def _may_be_uneven(script: Script, node: ast.Subscript) -> bool:
    """Whether a rank's part of a batch is cut out so that sizes differ by one: split, or each n-th."""
    flow, part, split = script.flow, node.slice, node.value
    if isinstance(part, ast.Slice):
        return Tag.RANK in flow.tags(part.lower) and Tag.WORLD in flow.tags(part.step)
    if not isinstance(split, ast.Call) or Tag.RANK not in flow.tags(part):
        return False
    return flow.dotted(split.func).rpartition(".")[2] in _UNEVEN and any(
        Tag.WORLD in flow.tags(each) for each in split.args
    )


def _weighted(script: Script) -> bool:
    """Whether the script minds the sizes of shares: it adds losses up, gives one a weight, or has no mean to see."""
    if any(script.flow.text(keyword(call, "reduction")) in ("sum", "none") for call, _ in script.calls()):
        return True
    if not any(_CRITERION.search(name) or name.rpartition(".")[2] in _MEANS for _, name in script.calls()):
        return True
    losses = [call.func.value for call, _ in script.calls("backward") if isinstance(call.func, ast.Attribute)]
    parts = [part for loss in losses for part in _made_of(script, loss)]
    factors = [side for part in parts if _scales(part) for side in (part.left, part.right)]  # type: ignore[attr-defined]
    names = {ast.unparse(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute))}
    factors += [
        each.value for each in script.nodes(ast.AugAssign) if _scales(each) and ast.unparse(each.target) in names
    ]
    return any("len(" in ast.unparse(each) or Tag.WORLD in script.flow.tags(each) for each in factors)


def _scales(node: ast.AST) -> bool:
    return isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Mult, ast.Div))


def _equal_parts(script: Script) -> bool:
    """Whether the script asks whether the number of workers divides a batch."""
    return any(
        isinstance(each.op, ast.Mod) and Tag.WORLD in script.flow.tags(each.right) for each in script.nodes(ast.BinOp)
    )
