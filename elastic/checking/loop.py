# SPDX-License-Identifier: Apache-2.0
"""The body of a loop over shares: KV502 and KV504 to KV507."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking import facts
from kfp_volcano.elastic.checking.facts import Tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients", "clip_grads_with_norm_")
_GROWS = ("append", "extend", "add", "insert", "update", "add_scalar", "appendleft", "writerow")
_EVALUATES = re.compile(r"^(evaluate|eval|validate|validation|test|run_eval)(_\w+)?$")
_DISPLAYS = re.compile(r"bar$|progress", re.IGNORECASE)
"""Names of progress bars: what they show is nobody's result."""
_READS_ONCE = ("get_rank", "get_world_size", "Get_rank", "Get_size", "rank", "size", "process_index", "num_processes")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about what stands beside `training.step`, and about clipping by hand."""
    yield from _clips_by_hand(script)
    if script.live:
        yield from _read_once(script)
        yield from _steps_beside(script)
        yield from _attempts(script)
    yield from _evaluations(script)


def _read_once(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        source = facts.CALLS.get(name, facts.CALLS.get(last, Tag.NONE)) & (Tag.RANK | Tag.WORLD)
        if last in ("getenv", "get") and call.args and (last == "getenv" or name.endswith("environ.get")):
            source = _of_group(flow.text(call.args[0]))
        elif last not in _READS_ONCE or flow.called(call):
            source = Tag.NONE
        if source:
            yield script.found(call, "KV502", f"`{script.shown(call)}` is read in a process that outlives it")
    for node in script.nodes(ast.Subscript):
        if (
            flow.dotted(node.value).endswith("environ")
            and isinstance(node.ctx, ast.Load)
            and _of_group(flow.text(node.slice))
        ):
            yield script.found(node, "KV502", f"`{script.shown(node)}` is read in a process that outlives it")
    for target, value in script.assignments():
        if (
            isinstance(value, ast.Attribute)
            and Tag.TRAINING in flow.tags(value.value)
            and value.attr in ("first", "workers")
            and not script.in_live_loop(target)
        ):
            yield script.found(
                target, "KV502", f"`{script.shown(target)} = {script.shown(value)}` is kept from before the loop"
            )


def _of_group(variable: str) -> Tag:
    """Whether a variable holds the process's place in the group; its place on the node stays."""
    local = variable.startswith(("LOCAL_", "KFP_VOLCANO_POD", "HOSTNAME", "POD_NAME"))
    return Tag.NONE if local else facts.variable(variable)


def _steps_beside(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, name in script.calls("backward", "step", "minimize"):
        if not isinstance(call.func, ast.Attribute) or not script.in_live_loop(call):
            continue
        owner = flow.tags(call.func.value)
        scaler = call.func.attr == "step" and any(Tag.OPTIMIZER in flow.tags(each) for each in call.args)
        backward = call.func.attr in ("backward", "minimize") or name == "torch.autograd.backward"
        if backward or scaler or (Tag.OPTIMIZER in owner and Tag.TRAINING not in owner):
            yield script.found(call, "KV504", f"`{script.shown(call)}` beside training.step")


def _clips_by_hand(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, name in script.calls(*_CLIPS):
        if script.live and script.in_live_loop(call):
            yield script.found(call, "KV505", f"`{script.shown(call)}` sees this worker's part only")
            continue
        function = flow.function(call)
        sums = [
            each
            for each, called in script.calls("all_reduce", "allreduce", "reduce_gradients", "Allreduce")
            if flow.function(each) is function
            and each.lineno > call.lineno
            and "grad" in ast.unparse(flow.statement(each))
        ]
        loops = flow.loops(call)
        if any(not loops or loops[0] in flow.ancestors(each) for each in sums):
            yield script.found(call, "KV505", f"`{script.shown(call)}` comes before the sum in line {sums[0].lineno}")
        elif name.startswith("torch.nn.utils") and any(
            Tag.SHARDED in flow.tags(each)
            for value in call.args
            for each in ast.walk(value)
            if isinstance(each, ast.Name)
        ):
            wrapped = any(True for _ in script.calls("FSDP", "FullyShardedDataParallel"))
            if wrapped:
                yield script.found(
                    call, "KV505", f"`{script.shown(call)}` sees this rank's shard: use model.clip_grad_norm_"
                )


def _attempts(script: Script) -> Iterator[Finding]:
    """What a loop's body adds to something that outlives the turn, whether or not the step counts."""
    flow = script.flow
    for loop in script.live_loops:
        within = _bound_by_plain_assignment(loop)
        for node in (each for body in loop.body for each in ast.walk(body)):
            target: ast.AST | None = None
            if isinstance(node, ast.AugAssign):
                target = node.target
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _GROWS
                and Tag.TRAINING not in flow.tags(node.func.value)
            ):
                target = node.func.value
            if target is None or _root(target) in within or _DISPLAYS.search(_root(target)):
                continue
            if not any(Tag.COUNTED in flow.tags(test) or _of_share(script, test) for test, _ in flow.conditions(node)):
                yield script.found(node, "KV506", f"`{script.shown(node)}` runs again with a step that is done again")


def _of_share(script: Script, test: ast.AST) -> bool:
    """Whether a condition holds for committed steps only: it asks `share.ends_epoch`."""
    return any(
        isinstance(each, ast.Attribute)
        and each.attr in ("ends_epoch", "committed")
        and Tag.SHARE in script.flow.tags(each.value)
        for each in ast.walk(test)
    )


def _bound_by_plain_assignment(loop: ast.For | ast.AsyncFor) -> set[str]:
    """The names that are new in each turn."""
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for node in (each for body in loop.body for each in ast.walk(body)):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, (ast.For, ast.comprehension)):
            names |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            names |= {
                each.id
                for item in node.items
                if item.optional_vars is not None
                for each in ast.walk(item.optional_vars)
                if isinstance(each, ast.Name)
            }
    return names


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _evaluations(script: Script) -> Iterator[Finding]:
    flow = script.flow
    if not (script.live or script.distributed):
        return
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        named = _EVALUATES.match(last) and flow.called(call)
        if not named:
            continue
        loop = script.training_loop(call)
        trains = script.in_live_loop(call) if script.live else loop is not None and not script.trains(call)
        if trains and not flow.on_some_ranks(call) and not _reduces(script, call):
            yield script.found(call, "KV507", f"`{script.shown(call)}` runs on every worker")


def _reduces(script: Script, call: ast.Call) -> bool:
    """Whether an evaluation is shared out: it sums something over the ranks, or decides by rank inside."""
    for function in script.flow.called(call):
        for each in ast.walk(function):
            if isinstance(each, ast.Call) and script.flow.dotted(each.func).rpartition(".")[2] in (
                "all_reduce",
                "all_gather",
                "reduce",
                "gather_for_metrics",
                "gather",
            ):
                return True
            if isinstance(each, (ast.Name, ast.Attribute)) and Tag.RANK in script.flow.tags(each):
                return True
    return False
