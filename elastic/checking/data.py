# SPDX-License-Identifier: Apache-2.0
"""Samplers and positions: KV201, KV202 and KV204 to KV206."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.evaluating import for_evaluation
from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.orders import truthy
from kfp_volcano.elastic.checking.script import keyword, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["of_a_batch", "rules", "sharders"]

_SHARDS = ("shard", "split_dataset_by_node", "get_shard", "split_by_node", "distributed_split")
_SHARDERS = ("prepare", "prepare_data_loader", "setup_dataloaders", "distribute_dataset", "AutoShardPolicy")
_SPLITS = ("array_split", "split", "chunk", "tensor_split", "hsplit")
_HOLDERS = ("Subset", "DataLoader", "TensorDataset", "SubsetRandomSampler", "SequentialSampler", "StatefulDataLoader")
_SKIPS = ("skip_first_batches", "StatefulDataLoader", "StatefulDistributedSampler")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about which samples are fed."""
    by_rank: list[tuple[ast.AST, Finding]] = [*_samplers(script), *_slices(script), *_counts(script)]
    yield from (finding for node, finding in by_rank if not for_evaluation(script, node))
    yield from _positions(script)
    if script.live:
        yield from _beside_training(script)


# ------------------------------------------------------------------ by rank


def _samplers(script: Script) -> Iterator[tuple[ast.AST, Finding]]:
    flow = script.flow
    epochs = {name for _, name in script.calls("set_epoch")}
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        if Tag.SAMPLER in flow.tags(call) and "istributed" in last:
            yield call, script.found(call, "KV201", f"`{script.shown(call)}` gives each rank a fixed part")
            if not epochs:
                yield call, script.found(call, "KV206", f"set_epoch of `{last}` is never called")
        elif last in _SHARDS and any(
            flow.tags(value) & (Tag.RANK | Tag.WORLD) for value in (*call.args, *(each.value for each in call.keywords))
        ):
            yield call, script.found(call, "KV201", f"`{script.shown(call)}` gives each rank a fixed part")
    for call in sharders(script):
        yield call, script.found(call, "KV201", f"`{script.shown(call)}` shards its loaders by rank")


def sharders(script: Script) -> Iterator[ast.Call]:
    """The calls by which a library shares loaders out by rank: of accelerate, Fabric, Lightning, transformers."""
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        handed = last in _SHARDERS and any(Tag.LOADER in script.flow.tags(value) for value in call.args)
        hugging = last.endswith("Trainer") and name.startswith(
            ("transformers.", "trl.", "peft.", "sentence_transformers.")
        )
        if handed or hugging or (last == "Trainer" and _scales_itself(call)):
            yield call


def _scales_itself(call: ast.Call) -> bool:
    """Whether Lightning's Trainer is told of several processes, so that it puts DistributedSamplers in."""
    strategy, devices, nodes = keyword(call, "strategy"), keyword(call, "devices"), keyword(call, "num_nodes")
    several = [
        each
        for each in (devices, nodes)
        if each is not None and not (isinstance(each, ast.Constant) and each.value == 1)
    ]
    sharding = keyword(call, "use_distributed_sampler", "replace_sampler_ddp")
    off = isinstance(sharding, ast.Constant) and sharding.value is False
    return (strategy is not None or bool(several)) and not off


def _slices(script: Script) -> Iterator[tuple[ast.AST, Finding]]:
    flow = script.flow
    for node in script.nodes(ast.Subscript):
        part = node.slice
        if isinstance(part, ast.Slice):
            lower, upper, step = (flow.tags(each) for each in (part.lower, part.upper, part.step))
            strided = Tag.RANK in lower and Tag.WORLD in step
            block = Tag.RANK in lower and (part.upper is None or Tag.RANK in upper)
            right = of_a_batch(script, node, node.value) or _block_at_a_position(script, node, part)
            if (strided or block) and not right:
                yield (
                    node,
                    script.found(node, "KV201", f"`{script.shown(node)}` is a part by rank of what stays the same"),
                )
        elif Tag.RANK in flow.tags(part) and isinstance(node.value, ast.Call):
            split = node.value
            name = flow.dotted(split.func).rpartition(".")[2]
            world = any(
                Tag.WORLD in flow.tags(each) for each in (*split.args, *(each.value for each in split.keywords))
            )
            source = split.func.value if isinstance(split.func, ast.Attribute) and len(split.args) < 2 else split  # noqa: PLR2004
            if name in _SPLITS and world and not of_a_batch(script, node, source):
                yield (
                    node,
                    script.found(node, "KV201", f"`{script.shown(node)}` is a part by rank of what stays the same"),
                )


def _counts(script: Script) -> Iterator[tuple[ast.AST, Finding]]:
    """`range(rank, n, world)`, and `i % world == rank`."""
    flow = script.flow
    for call, name in script.calls("range", "islice", "arange"):
        numbers = call.args[1:] if name.endswith("islice") else call.args
        strided = len(numbers) > 2 and Tag.RANK in flow.tags(numbers[0]) and Tag.WORLD in flow.tags(numbers[2])  # noqa: PLR2004
        block = len(numbers) == 2 and all(Tag.RANK in flow.tags(number) for number in numbers)  # noqa: PLR2004 - first, last
        if (strided or block) and not of_a_batch(script, call, call):
            yield call, script.found(call, "KV201", f"`{script.shown(call)}` counts by rank")
    for node in script.nodes(ast.Compare):
        mod = next((each for each in (node.left, *node.comparators) if isinstance(each, ast.BinOp)), None)
        if not all(isinstance(each, (ast.Eq, ast.NotEq)) for each in node.ops):
            continue  # `rank < len(batch) % world` hands a remainder out
        if mod is not None and isinstance(mod.op, ast.Mod) and Tag.WORLD in flow.tags(mod.right):
            others = [each for each in (node.left, *node.comparators) if each is not mod]
            if any(Tag.RANK in flow.tags(each) for each in others):
                yield node, script.found(node, "KV201", f"`{script.shown(node)}` chooses samples by rank")


def of_a_batch(script: Script, node: ast.AST, source: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether what is shared out by rank is one step's global batch, and not the whole dataset.

    A batch is new in each turn of the loop that the sharing stands in; a dataset's part is gone through in a loop
    further in.
    """
    flow = script.flow
    if any(
        isinstance(each, ast.Call) and flow.dotted(each.func).rpartition(".")[2] in _HOLDERS
        for each in flow.ancestors(node)
    ):
        return False
    loops = flow.loops(node)
    if loops:
        bound = _bound_in(loops[0])
        sources = names_in(source)
        if not sources & bound:
            return False
        return _bounded(script, source, loops[0]) or not _gone_through(script, node, loops[0])
    function = flow.function(node)
    if function is None or function in seen or isinstance(function, ast.Lambda):
        return isinstance(function, ast.Lambda) and bool(flow.loops(function))
    if flow.function(function) is not None and flow.loops(function):
        return True  # a function made anew in each turn of a loop
    calls = list(flow.callers(function))
    return bool(calls) and all(of_a_batch(script, call, call, seen | {function}) for call in calls)


def _block_at_a_position(script: Script, node: ast.AST, part: ast.Slice) -> bool:
    """Whether a slice is this rank's block of a batch that begins where the loop is.

    `data[at + rank * share : at + (rank + 1) * share]`, or up to `+ share`: as wide as the ranks are apart. Who goes
    through a region of its own takes smaller steps than that.
    """
    loops = script.flow.loops(node)
    if not loops or part.lower is None or part.upper is None:
        return False
    lower, upper = script.known(part.lower), script.known(part.upper)
    apart = {ast.unparse(width) for _, width in _times_rank(script, lower)}
    wide = (
        isinstance(upper, ast.BinOp)
        and isinstance(upper.op, ast.Add)
        and ast.unparse(upper.left) == ast.unparse(part.lower)
        and ast.unparse(upper.right) in apart
    )
    next_ = any(
        isinstance(rank, ast.BinOp) and ast.unparse(width) in apart for rank, width in _times_rank(script, upper)
    )
    return (wide or next_) and bool(names_in(lower) & _bound_in(loops[0]))


def _times_rank(script: Script, value: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The products with a rank in a value: the rank, and what it is multiplied with."""
    for each in ast.walk(value):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult):
            for rank, width in ((each.left, each.right), (each.right, each.left)):
                if Tag.RANK in script.flow.tags(rank):
                    yield rank, width


def _bound_in(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    """The names that a loop gives new values in each turn."""
    names: set[str] = set()
    for each in ast.walk(loop):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            names.add(each.id)
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            names.add(each.attr)
    return names


def _bounded(script: Script, source: ast.AST, loop: ast.AST) -> bool:
    """Whether a source is cut out between two positions: `order[at : at + batch]`."""
    candidates = [source]
    if isinstance(source, ast.Name):
        candidates += [
            value
            for target, value in script.assignments()
            if isinstance(target, ast.Name) and target.id == source.id and loop in script.flow.ancestors(target)
        ]
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice) and each.slice.upper is not None
        for each in candidates
    )


def _gone_through(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    """Whether the part is gone through, step by step, in a loop inside of this one."""
    statement = script.flow.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {name for target in targets for name in names_in(target)}
    for each in ast.walk(loop):
        if each is loop or not isinstance(each, (ast.For, ast.AsyncFor, ast.While)):
            continue
        uses = names & names_in(each) or node in ast.walk(each)
        steps = any(
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"
            for call in ast.walk(each)
        )
        if uses and steps:
            return True
    return False


# ------------------------------------------------------------------ positions


def _positions(script: Script) -> Iterator[Finding]:
    flow = script.flow
    if not (script.live or script.distributed):
        return
    for call, _ in script.calls(*_SKIPS):
        yield script.found(call, "KV202", f"`{script.shown(call)}` counts the batches of one rank")
    for call, _ in script.calls("islice"):
        if len(call.args) > 2 and Tag.LOADER in flow.tags(call.args[0]):  # noqa: PLR2004 - iterable, first, last
            yield script.found(call, "KV202", f"`{script.shown(call)}` skips batches of one rank")
    for loop in script.nodes(ast.For):
        if not (
            isinstance(loop.iter, ast.Call)
            and Tag.LOADER in flow.tags(loop.iter)
            and isinstance(loop.target, ast.Tuple)
        ):
            continue
        counter = loop.target.elts[0]
        for each in loop.body:
            if not (isinstance(each, ast.If) and isinstance(each.test, ast.Compare)):
                continue
            early = isinstance(each.test.ops[0], (ast.Lt, ast.LtE)) and isinstance(each.body[-1], ast.Continue)
            if early and ast.unparse(each.test.left) == ast.unparse(counter):
                yield script.found(each, "KV202", f"`if {script.shown(each.test)}: continue` skips batches of one rank")


# ------------------------------------------------------------------ beside Training


def _beside_training(script: Script) -> Iterator[Finding]:
    flow = script.flow
    for call, _ in script.calls():
        if Tag.LOADER in flow.tags(call) and "oader" in flow.dotted(call.func).rpartition(".")[2]:
            sampler = keyword(call, "sampler", "batch_sampler")
            if truthy(keyword(call, "shuffle")) or (sampler is not None and not (isinstance(sampler, ast.Constant))):
                yield script.found(call, "KV204", f"`{script.shown(call)}` has an order of its own")
    for loop in script.live_loops:
        if isinstance(loop.iter, ast.Call) and flow.dotted(loop.iter.func).rpartition(".")[2] == "zip":
            if any(Tag.LOADER in flow.tags(each) for each in loop.iter.args):
                yield script.found(loop, "KV204", f"`{script.shown(loop.iter)}` pairs shares with batches of a loader")
            continue
        for call, _ in script.calls("next"):
            if loop in flow.loops(call) and call.args and Tag.LOADER in flow.tags(call.args[0]):
                yield script.found(call, "KV204", f"`{script.shown(call)}` takes a batch of a loader")
        if not _uses_share(script, loop):
            yield script.found(loop, "KV205", f"`{script.shown(loop.target)}` is not what is fed")


def _uses_share(script: Script, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop's body reads its share's ids, or hands the share on; batches of `training.loader` are it."""
    flow = script.flow
    loaders = [
        each
        for each in ast.walk(loop.iter)
        if isinstance(each, ast.Call) and flow.dotted(each.func).endswith(".loader")
    ]
    if loaders or not isinstance(flow.statement(loop), ast.stmt) or _from_loader(script, loop.iter):
        return True
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for body in loop.body:
        for each in ast.walk(body):
            if isinstance(each, ast.Attribute) and each.attr == "ids" and names & names_in(each.value):
                return True
            handed = isinstance(each, ast.Call) and [*each.args, *(value.value for value in each.keywords)]
            if handed and any(isinstance(value, ast.Name) and value.id in names for value in handed):
                return True
    return False


def _from_loader(script: Script, node: ast.AST) -> bool:
    """Whether a name was made by `training.loader(…)`."""
    return isinstance(node, ast.Name) and any(
        isinstance(target, ast.Name)
        and target.id == node.id
        and isinstance(value, ast.Call)
        and script.flow.dotted(value.func).endswith(".loader")
        for target, value in script.assignments()
    )
