# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and how a script leaves: KV401 to KV403."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.pace import each_step
from kfp_volcano.elastic.checking.saving import saves
from kfp_volcano.elastic.checking.script import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.checking.codes import Finding
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["rules"]

_EXITS = ("exit", "_exit", "quit", "SystemExit")
_KILLS = ("os.kill", "os.abort", "os.killpg", "signal.raise_signal", "os.execv", "os.execvp")
_HOPS = 3
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
    if not script.live:
        yield from _falls_off(script, flags)


def _falls_off(script: Script, flags: set[str]) -> Iterator[Finding]:
    """Loops that are left because of a flag, in a script that never ends with a code of its own: it ends with 0."""
    ends = [call for call, name in script.calls() if _code(script, call) not in (None, 0) or name in _KILLS]
    raised = [
        each
        for each in script.nodes(ast.Raise)
        if any(flags & names_in(test) for test, _ in script.flow.conditions(each))
    ]
    if ends or raised:
        return
    places: list[ast.If | ast.While] = [*script.nodes(ast.If), *script.nodes(ast.While)]
    for node in places:
        leaves = isinstance(node, ast.While) or any(isinstance(each, (ast.Break, ast.Return)) for each in node.body)
        trains = script.training_loop(node) is not None or (
            isinstance(node, ast.While)
            and any(script.trains(each) for each in ast.walk(node) if isinstance(each, ast.Call))
        )
        exits = any(_code(script, each) is not None for each in ast.walk(node))
        if leaves and trains and not exits and flags & names_in(node.test):
            kind = "while" if isinstance(node, ast.While) else "if"
            yield script.found(node, "KV402", f"after `{kind} {script.shown(node.test)}` the process ends with 0")
            return


def _flags(script: Script) -> set[str]:
    """The names that handlers set, and what is computed from them: `leave = torch.tensor(int(stop))`, `def asked()`."""
    names = _set_by_handlers(script)
    for _ in range(_HOPS if names else 0):
        names |= {
            target.id
            for target, value in script.assignments()
            if isinstance(target, ast.Name)
            and names & names_in(value)
            and not any(script.trains(each) for each in ast.walk(value) if isinstance(each, ast.Call))
        }
        for node in script.nodes(ast.Return):
            function = script.flow.function(node)
            if isinstance(function, ast.FunctionDef) and node.value is not None and names & names_in(node.value):
                names.add(function.name)
    return names


def _set_by_handlers(script: Script) -> set[str]:
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
    if any(each_step(script, call) for call in written):
        return
    yield script.found(
        written[0], "KV401", f"nobody minds SIGTERM, and `{script.shown(written[0])}` is not done each step"
    )


def _library_minds(script: Script) -> bool:
    """Lightning saves by itself when SIGTERM comes; Keras' BackupAndRestore at each epoch or step."""
    return any(True for _ in script.calls("SLURMEnvironment", "BackupAndRestore", "PreemptionCheckpointHandler"))
