# SPDX-License-Identifier: Apache-2.0
"""The group of processes: KV501 and KV503."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.script import keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_COLLECTIVES = (
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "broadcast",
    "broadcast_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "gather",
    "gather_object",
    "scatter",
    "scatter_object_list",
    "allreduce",
    "allgather",
    "Allreduce",
    "Allgather",
    "Barrier",
    "bcast",
    "Bcast",
    "wait_for_everyone",
    "rendezvous",
)
_GROUPS = re.compile(
    r"(^|[._])(distributed|dist|horovod|hvd|accelerator|fabric|comm|comm_world|world|mpi|xm|strategy|multihost_utils)([._(]|$)",
    re.IGNORECASE,
)
_SIZES = ("world_size", "num_replicas", "nprocs", "num_processes", "num_nodes", "nnodes", "num_shards")
_SIZE_NAME = re.compile(
    r"^(world_?size|num_workers_total|num_replicas|n_?procs|n_?nodes|num_nodes|num_gpus|n_?gpus)$", re.IGNORECASE
)
_FIXED_VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "NNODES")
_FIXED_DEVICE = re.compile(r"^(cuda|gpu|/gpu|xpu|npu|hpu):\d+$", re.IGNORECASE)


def rules(script: Script) -> Iterator[Finding]:
    """All findings about the group."""
    yield from _collectives(script)
    yield from _sizes(script)
    yield from _devices(script)


def _collectives(script: Script) -> Iterator[Finding]:
    flow = script.flow
    by_rank: list[tuple[ast.Call, str, ast.expr]] = []
    for call, name in script.calls(*_COLLECTIVES):
        last = name.rpartition(".")[2]
        if flow.called(call) or not _GROUPS.search(name) or keyword(call, "group", "process_group") is not None:
            continue
        test = next((test for test, _ in flow.conditions(call) if Tag.RANK in flow.tags(test)), None)
        if test is not None:
            by_rank.append((call, last, test))
        elif flow.on_some_ranks(call):
            yield script.found(call, "KV501", f"`{script.shown(call)}` is reached by some ranks only")
    for call, last, test in by_rank:
        function = flow.function(call)
        # One branch each, or one `if` each: all ranks call it, at different places.
        others = [
            each
            for each, name, _ in by_rank
            if each is not call
            and name == last
            and flow.function(each) is function
            and _branch(script, each) != _branch(script, call)
        ]
        if not others:
            yield script.found(call, "KV501", f"`{script.shown(call)}` stands under `{script.shown(test)}`")


def _branch(script: Script, call: ast.Call) -> list[tuple[str, bool]]:
    """Under which conditions on ranks a call stands."""
    return [
        (ast.unparse(test), holds) for test, holds in script.flow.conditions(call) if Tag.RANK in script.flow.tags(test)
    ]


def _number(script: Script, value: ast.expr | None) -> int | None:
    """A whole number that is written down, directly or under a name that is bound once."""
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value.value
    if isinstance(value, ast.Name):
        known = [
            part for target, part in script.assignments() if isinstance(target, ast.Name) and target.id == value.id
        ]
        if len(known) == 1 and isinstance(known[0], ast.Constant):
            return _number(script, known[0])
    return None


def _sizes(script: Script) -> Iterator[Finding]:
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        for each in call.keywords:
            what = _fixed(script, last, each)
            if what:
                yield script.found(each.value, "KV503", what)
        if last == "TCPStore" and len(call.args) > 1 and _number(script, call.args[1]):
            yield script.found(call, "KV503", f"`{script.shown(call)}` has a fixed port")
    for target, value in script.assignments():
        if isinstance(target, (ast.Name, ast.Attribute)):
            name = target.id if isinstance(target, ast.Name) else target.attr
            if _SIZE_NAME.match(name) and (_number(script, value) or 0) > 1:
                what = f"`{script.shown(target)} = {script.shown(value)}` is a fixed number of workers"
                yield script.found(target, "KV503", what)
        elif (
            isinstance(target, ast.Subscript)
            and script.flow.dotted(target.value).endswith("environ")
            and script.flow.text(target.slice) in _FIXED_VARIABLES
            and isinstance(value, ast.Constant)
        ):
            yield script.found(target, "KV503", f"`{script.shown(target)} = {script.shown(value)}` is fixed")


def _fixed(script: Script, function: str, argument: ast.keyword) -> str:
    """What is fixed by an argument of a function; empty where nothing is."""
    number, name = _number(script, argument.value), argument.arg or ""
    shown = f"`{name}={script.shown(argument.value)}` of `{function}`"
    sized = name in _SIZES or (function == "Trainer" and name in ("devices", "num_nodes"))
    if sized and number is not None and number > 1:
        return f"{shown} is a fixed number of workers"
    if function == "init_process_group" and name == "rank" and number is not None:
        return f"{shown} is the same for all"
    written = isinstance(argument.value, (ast.Constant, ast.Name))  # an option's default may be another
    if name == "init_method" and written and re.search(r"^tcp://.*:\d+$", script.flow.text(argument.value)):
        return f"{shown} is a fixed address"
    if name in ("master_port", "port") and function in ("TCPStore", "init_distributed") and number:
        return f"{shown} is a fixed port"
    return ""


def _devices(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        values = [*call.args, *(each.value for each in call.keywords)]
        moved = (
            last in ("to", "device", "cuda", "set_device", "Device")
            or keyword(call, "device", "map_location") is not None
        )
        fixed = [flow.text(value) for value in values if _FIXED_DEVICE.match(flow.text(value))]
        index = last in ("cuda", "set_device") and any(_number(script, value) is not None for value in call.args)
        second = name == "torch.device" and len(call.args) > 1 and _number(script, call.args[1]) is not None
        if moved and not last.startswith("load") and (fixed or index or second):
            yield script.found(call, "KV503", f"`{script.shown(call)}` is a fixed device")
    for target, value in script.assignments():
        if isinstance(target, ast.Name) and _FIXED_DEVICE.match(flow.text(value)) and isinstance(value, ast.Constant):
            yield script.found(target, "KV503", f"`{script.shown(target)} = {value.value!r}` is a fixed device")
