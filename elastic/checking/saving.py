# SPDX-License-Identifier: Apache-2.0
"""How checkpoints are written: KV301 and KV302."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.script import keyword, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["LOADERS", "MANAGED", "rules", "saves"]

_SAVES = {
    "torch.save": 1,
    "pickle.dump": 1,
    "cloudpickle.dump": 1,
    "dill.dump": 1,
    "joblib.dump": 1,
    "numpy.save": 0,
    "numpy.savez": 0,
    "numpy.savez_compressed": 0,
    "safetensors.torch.save_file": 1,
    "safetensors.torch.save_model": 1,
    "tensorflow.io.write_file": 0,
}
"""Functions that write to a path, and which argument names it."""
_WHOLE_SAVES = (
    "save_checkpoint",
    "save_state",
    "save_pretrained",
    "save_weights",
    "async_save",
    "save_model",
    "write_checkpoint",
)
MANAGED = ("CheckpointManager", "ModelCheckpoint", "BackupAndRestore", "Checkpointer", "AsyncCheckpointer")
LOADERS = (
    "torch.load",
    "pickle.load",
    "pickle.loads",
    "joblib.load",
    "torch.distributed.checkpoint.load",
    "numpy.load",
)
_COLLECTIVE_SAVES = (
    "get_model_state_dict",
    "get_state_dict",
    "get_optimizer_state_dict",
    "full_tensor",
    "full_optim_state_dict",
)
_FRESH = re.compile(r"step|epoch|iter|sample|time|uuid|version|count|number|tag|\bi\b|\bt\b|\be\b|\bn\b", re.IGNORECASE)
_MOVES = ("replace", "rename", "renames", "move", "link", "atomic_save", "atomic_write")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about writing checkpoints."""
    yield from _sharded(script)
    yield from _in_place(script)


def saves(script: Script) -> list[ast.Call]:
    """The calls that write a checkpoint or a part of one."""
    found = []
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        distributed = name.startswith("torch.distributed.checkpoint.") and last in (
            "save",
            "async_save",
            "save_state_dict",
        )
        library = (last in _WHOLE_SAVES or _manager_saves(script, call, last)) and not script.flow.called(call)
        if name in _SAVES or distributed or library:
            found.append(call)
    return found


def _manager_saves(script: Script, call: ast.Call, last: str) -> bool:
    """`manager.save()` where manager is one of checkpoints."""
    if last != "save" or not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    made = [
        script.flow.dotted(value.func).rpartition(".")[2]
        for target, value in script.assignments()
        if isinstance(value, ast.Call) and ast.unparse(target) == ast.unparse(owner)
    ]
    return any(each in MANAGED or each == "Checkpoint" for each in made)


# ------------------------------------------------------------------ of what is sharded


def _sharded(script: Script) -> Iterator[Finding]:
    flow = script.flow
    consolidated = any(True for _ in script.calls("consolidate_state_dict"))
    told: set[ast.AST] = set()
    for call, name in script.calls():
        last = name.rpartition(".")[2]
        owner = flow.tags(call.func.value) if isinstance(call.func, ast.Attribute) else Tag.NONE
        arguments = [*call.args, *(each.value for each in call.keywords)]
        sharded = any(Tag.SHARDED in flow.tags(each) for each in arguments)
        taken = last == "state_dict" and Tag.SHARDED in owner
        gathered = last in _COLLECTIVE_SAVES and (sharded or Tag.SHARDED in owner)
        collective = name.startswith("torch.distributed.checkpoint.") and last in (
            "save",
            "async_save",
            "save_state_dict",
        )
        engine = last in ("save_checkpoint", "save_state", "save_16bit_model") and (
            Tag.SHARDED in owner or _plugin(script)
        )
        written = name in _SAVES and sharded and not _gathers(script, call)
        if not (taken or gathered or collective or engine or written) or not flow.on_some_ranks(call):
            continue
        if consolidated and "ZeroRedundancyOptimizer" in _shards(script):
            continue
        statement = flow.statement(call)
        if statement not in told:
            told.add(statement)
            yield script.found(call, "KV301", f"`{script.shown(call)}` runs on some ranks, and the state is sharded")


def _plugin(script: Script) -> bool:
    """Whether accelerate or Lightning is told to shard."""
    return any(
        True
        for _ in script.calls("FullyShardedDataParallelPlugin", "DeepSpeedPlugin", "FSDPStrategy", "DeepSpeedStrategy")
    )


def _shards(script: Script) -> set[str]:
    """What shards something in the script."""
    names = ("ZeroRedundancyOptimizer", "FSDP", "FullyShardedDataParallel", "fully_shard", "initialize")
    return {name.rpartition(".")[2] for _, name in script.calls(*names)}


def _gathers(script: Script, call: ast.Call) -> bool:
    """Whether what is written was made whole on all ranks before."""
    return any(isinstance(each, ast.Name) and not script.flow.tags(each) & Tag.SHARDED for each in call.args[:1])


# ------------------------------------------------------------------ in place


def _in_place(script: Script) -> Iterator[Finding]:
    flow = script.flow
    loaded = {ast.unparse(call.args[0]) for call, name in script.calls() if name in LOADERS and call.args}
    handlers = script.signal_handlers
    for call in saves(script):
        name = flow.dotted(call.func)
        if name not in _SAVES:
            continue
        path = _path(script, call, _SAVES[name])
        if path is None or _moved(script, call, path) or _fresh(script, call, path):
            continue
        again = flow.runs_in_loop(call) or ast.unparse(path) in loaded
        if again or any(handler in flow.ancestors(call) for handler in handlers):
            yield script.found(call, "KV302", f"`{script.shown(call)}` writes over the last one")


def _path(script: Script, call: ast.Call, place: int) -> ast.expr | None:
    """The path that a call writes to; of a file object, the one that it was opened with."""
    path = keyword(call, "f", "file", "path", "filename") or (call.args[place] if len(call.args) > place else None)
    if isinstance(path, ast.Name):
        for each in script.flow.ancestors(call):
            for item in each.items if isinstance(each, (ast.With, ast.AsyncWith)) else []:
                opened = item.context_expr
                if (
                    isinstance(item.optional_vars, ast.Name)
                    and item.optional_vars.id == path.id
                    and isinstance(opened, ast.Call)
                ):
                    if isinstance(opened.func, ast.Attribute) and opened.func.attr == "open":
                        return opened.func.value
                    return opened.args[0] if opened.args else None
    if isinstance(path, ast.Call) and script.flow.dotted(path.func).endswith("BytesIO"):
        return None
    return path


def _moved(script: Script, call: ast.Call, path: ast.expr) -> bool:
    """Whether what was written is renamed afterwards, in the same function; or kept in memory."""
    function = script.flow.function(call)
    names = names_in(path)
    texts = [
        ast.unparse(value)
        for target, value in script.assignments()
        if names_in(target) & names and isinstance(target, ast.Name)
    ]
    if any("BytesIO" in text or "NamedTemporaryFile" in text for text in texts):
        return True
    for each, _ in script.calls(*_MOVES):
        if script.flow.function(each) is not function:
            continue
        literal = isinstance(path, ast.Constant) and path.value in [script.flow.text(value) for value in each.args]
        if literal or names & names_in(each) - {"self", "os", "Path", "args"}:
            return True
    return False


def _fresh(script: Script, call: ast.Call, path: ast.expr, depth: int = 3) -> bool:
    """Whether each checkpoint has a path of its own, with its step or epoch in the name."""
    pieces = [
        value
        for each in ast.walk(path)
        for value in (
            [each.value]
            if isinstance(each, ast.FormattedValue)
            else [*each.args, *(kw.value for kw in each.keywords)]
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "format"
            else [each.right]
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)
            else []
        )
    ]
    if any(_FRESH.search(name) for piece in pieces for name in names_in(piece)):
        return True
    if not isinstance(path, ast.Name) or not depth:
        return False
    values = [value for target, value in script.assignments() if isinstance(target, ast.Name) and target.id == path.id]
    if any(_fresh(script, call, value, depth - 1) for value in values):
        return True
    function = script.flow.function(call)
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for each in script.flow.callers(function):
            given = [*each.args, *(kw.value for kw in each.keywords)]
            if any(
                _fresh(script, each, value, depth - 1)
                for value in given
                if isinstance(value, (ast.JoinedStr, ast.Name, ast.BinOp))
            ):
                return True
    return False
