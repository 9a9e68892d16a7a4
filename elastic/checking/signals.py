# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and how a script leaves: KV401 to KV403."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.saving import saves
from kfp_volcano.elastic.checking.script import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_EXITS = ("exit", "_exit", "quit", "SystemExit")
_PERIODIC = (ast.Mod,)
_TELL = ("print", "info", "warning", "debug", "error", "write", "flush", "log", "exception")


def rules(script: Script) -> Iterator[Finding]:
    """All findings about SIGTERM."""
    handled = False
    for call, handler in script.signal_calls:
        handled = True
        if isinstance(handler, ast.Attribute) and handler.attr == "SIG_IGN":
            yield script.found(call, "KV401", f"`{script.shown(call)}` ignores SIGTERM")
            continue
        for function in script.handlers_of(handler):
            yield from _handler(script, function)
    yield from _told(script)
    if not handled and not script.live:
        yield from _without_handler(script)


def _handler(script: Script, function: ast.AST) -> Iterator[Finding]:
    body = function.body if isinstance(function.body, list) else [function.body]  # type: ignore[attr-defined]
    reached = list(_reached(script, function))
    exits = [each for each in reached if _code(script, each) is not None]
    writes = [each for each in reached if each in saves(script)]
    for each in exits:
        if _code(script, each) == 0:
            yield script.found(each, "KV402", f"`{script.shown(each)}` in a handler of SIGTERM")
        if not writes:
            yield script.found(each, "KV403", f"`{script.shown(each)}` in a handler, nothing saved")
    effect = any(
        isinstance(each, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Raise, ast.Global, ast.Nonlocal))
        or (isinstance(each, ast.Call) and script.flow.dotted(each.func).rpartition(".")[2] not in _TELL)
        for part in body
        for each in ast.walk(part)
    )
    if not exits and not effect:
        yield script.found(function, "KV401", "the handler of SIGTERM does nothing")


def _reached(script: Script, function: ast.AST, depth: int = 3) -> Iterator[ast.AST]:
    """The nodes of a function and of those that it calls."""
    for each in ast.walk(function):
        if isinstance(each, (ast.Call, ast.Raise)):
            yield each
        if isinstance(each, ast.Call) and depth:
            for called in script.flow.called(each):
                yield from _reached(script, called, depth - 1)


def _code(script: Script, node: ast.AST) -> int | None:
    """The exit code of a call that ends the process: -1 where it is not seen; None of anything else."""
    if not isinstance(node, ast.Call):
        return None
    name = script.flow.dotted(node.func)
    if name.rpartition(".")[2] not in _EXITS or (
        isinstance(node.func, ast.Attribute) and not name.startswith(("sys.", "os."))
    ):
        return None
    if not node.args:
        return 0
    value = node.args[0]
    if isinstance(value, ast.Constant):
        return 0 if value.value in (0, None) else 1
    return 0 if script.flow.dotted(value) == "os.EX_OK" else -1


def _told(script: Script) -> Iterator[Finding]:
    """Exits with 0 under a flag that a handler sets."""
    flags = _flags(script)
    if not flags:
        return
    handlers = script.signal_handlers
    for call, _ in script.calls(*_EXITS):
        if _code(script, call) != 0 or any(handler in script.flow.ancestors(call) for handler in handlers):
            continue
        if any(holds and flags & names_in(test) for test, holds in script.flow.conditions(call)):
            yield script.found(call, "KV402", f"`{script.shown(call)}` after being told to leave")


def _flags(script: Script) -> set[str]:
    """The names that handlers set."""
    names: set[str] = set()
    for handler in script.signal_handlers:
        for each in ast.walk(handler):
            if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Store):
                names |= {each.id if isinstance(each, ast.Name) else each.attr}
            elif isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
                names |= names_in(each.value)
            elif (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Attribute)
                and each.func.attr in ("set", "append")
            ):
                names |= names_in(each.func.value)
    return names - {"self"}


def _without_handler(script: Script) -> Iterator[Finding]:
    """A loop that trains and saves, but not each step."""
    written = [call for call in saves(script) if script.flow.runs_in_loop(call)]
    if not written or not script.trained or _library_minds(script):
        return
    if any(_each_step(script, call) for call in written):
        return
    yield script.found(
        written[0], "KV401", f"nobody minds SIGTERM, and `{script.shown(written[0])}` is not done each step"
    )


def _library_minds(script: Script) -> bool:
    """Lightning saves by itself when SIGTERM comes; Keras' BackupAndRestore at each epoch or step."""
    return any(True for _ in script.calls("SLURMEnvironment", "BackupAndRestore", "PreemptionCheckpointHandler"))


def _each_step(script: Script, call: ast.Call, seen: frozenset[ast.AST] = frozenset()) -> bool:
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
    return any(_each_step(script, each, seen | {function}) for each in flow.callers(function))


def _owner(script: Script, call: ast.Call) -> Tag:
    return script.flow.tags(call.func.value) if isinstance(call.func, ast.Attribute) else Tag.NONE
