# SPDX-License-Identifier: Apache-2.0
"""What is in a checkpoint, and whether one is read: KV305 and KV306."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.places import arguments_of
from kfp_volcano.elastic.checking.saving import LOADERS, MANAGED, saves
from kfp_volcano.elastic.checking.script import keyword, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_LOADS = (
    "load_state_dict",
    "restore",
    "load_checkpoint",
    "load_state",
    "load_weights",
    "load_model",
    "load_file",
    "latest_checkpoint",
    "restore_or_initialize",
    "from_checkpoint",
    "resume",
    *MANAGED,
)
_POSITION = re.compile(r"step|epoch|sample|cursor|position|iter|batch|offset|progress", re.IGNORECASE)
_SUMS = re.compile(r"loss|correct|metric|accuracy|error|grad", re.IGNORECASE)
"""Names of sums that are no positions."""
_FURTHER = re.compile(r"model|net|optim|sched|scaler|ema|criterion|loss", re.IGNORECASE)
"""Names of what has a state, but no position."""
_STATEFUL = re.compile(r"momentum|nesterov")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about what checkpoints hold."""
    if not script.live:
        yield from _incomplete(script)
        yield from _none(script)


def _incomplete(script: Script) -> Iterator[Finding]:
    flow = script.flow
    loads = [call for call, name in script.calls("load_state_dict") if isinstance(call.func, ast.Attribute)]
    if not loads:
        return
    kept = {
        tag
        for call, _ in script.calls("state_dict")
        if isinstance(call.func, ast.Attribute)
        for tag in (Tag.OPTIMIZER, Tag.SCHEDULER)
        if tag in flow.tags(call.func.value)
    }
    stateful = any(_has_state(script, call) for call, _ in script.calls())
    scheduled = any(
        Tag.SCHEDULER in flow.tags(call) and call.args
        for call, _ in script.calls()
        if isinstance(flow.parent(call), ast.Assign)
    )
    for call in saves(script):
        if flow.dotted(call.func) != "torch.save" or not call.args:
            continue
        if not flow.runs_in_loop(call) and not any(
            handler in flow.ancestors(call) for handler in script.signal_handlers
        ):
            continue
        content = script.known(call.args[0])
        lacks = []
        if Tag.OPTIMIZER not in kept and stateful:
            lacks.append("the optimizer's state")
        if Tag.SCHEDULER not in kept and scheduled:
            lacks.append("the schedule's state")
        bare = isinstance(content, ast.Call) and flow.dotted(content.func).endswith("state_dict")
        keys = (
            {key.value for key in content.keys if isinstance(key, ast.Constant)}
            if isinstance(content, ast.Dict)
            else set()
        )
        plain = isinstance(content, ast.Dict) and all(isinstance(key, ast.Constant) for key in content.keys)
        if bare or (plain and not any(_POSITION.search(str(key)) for key in keys) and not _counts(script, content)):
            lacks.append("the position")
        if lacks:
            yield script.found(call, "KV305", f"`{script.shown(call)}` lacks {' and '.join(lacks)}")


def _counts(script: Script, content: ast.expr) -> bool:
    """Whether one of the values says where training is, whatever its key.

    It is a number that counts: added to, the turn of a loop, what a `while` compares; or a state of something else than
    a model, an optimizer or a schedule, which may hold one.
    """
    if not isinstance(content, ast.Dict):
        return False
    counting = _counting(script)
    for each in content.values:
        if isinstance(each, (ast.Name, ast.Attribute, ast.BinOp, ast.Subscript)) and names_in(each) & counting:
            return True
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "state_dict":
            owner = each.func.value
            if not script.flow.tags(owner) and not _FURTHER.search(ast.unparse(owner)):
                return True
    return False


def _counting(script: Script) -> set[str]:
    """The names of numbers that grow while training goes on, and of the parameters they are handed on as."""
    names: set[str] = set()
    for node in script.nodes(ast.AugAssign):
        if isinstance(node.op, ast.Add) and not _SUMS.search(ast.unparse(node.target)):
            names |= names_in(node.target) if isinstance(node.target, ast.Name) else {ast.unparse(node.target)}
    for target, value in script.assignments():  # done = done + n
        added = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
        if isinstance(target, ast.Name) and added and target.id in names_in(value):
            names.add(target.id)
    for loop in script.nodes(ast.For):
        if script.flow.runs_in_loop(loop) or any(script.trains(each) for each in _calls(loop)):
            names |= names_in(loop.target)
    for each in script.nodes(ast.While):
        names |= {name.id for name in ast.walk(each.test) if isinstance(name, ast.Name)}
    names |= {name.rpartition(".")[2] for name in names}
    for call in script.flow.calls:
        for function in script.flow.called(call):
            places = [each.arg for each in arguments_of(function) if each.arg != "self"]
            handed = [*zip(places, call.args, strict=False), *((kw.arg or "", kw.value) for kw in call.keywords)]
            names |= {name for name, value in handed if names_in(value) & names}
    return names - {"self"}


def _calls(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def _has_state(script: Script, call: ast.Call) -> bool:
    """Whether a call makes an optimizer that remembers: any but plain SGD."""
    name = script.flow.dotted(call.func)
    if Tag.OPTIMIZER not in script.flow.tags(call) or not name.rpartition(".")[2][:1].isupper():
        return False
    return not name.endswith("SGD") or any(_STATEFUL.search(each.arg or "momentum") for each in call.keywords)


def _none(script: Script) -> Iterator[Finding]:
    trained = [
        call
        for call in script.trained
        if script.flow.runs_in_loop(call) or script.flow.dotted(call.func).endswith((".fit", ".train"))
    ]
    if not trained:
        return
    loads = any(name in LOADERS or name.rpartition(".")[2] in _LOADS for _, name in script.calls())
    resumes = any(keyword(call, "resume_from_checkpoint", "ckpt_path") is not None for call in trained)
    if not loads and not resumes:
        yield script.found(trained[0], "KV306", "training is never taken up from a checkpoint")
