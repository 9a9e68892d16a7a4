# SPDX-License-Identifier: Apache-2.0
"""A script under examination: its values, and what the rules ask of it again and again."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.elastic.checking import facts
from kfp_volcano.elastic.checking.codes import Finding
from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.flow import Flow
from kfp_volcano.elastic.checking.places import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.elastic.checking.places import Loop
    from kfp_volcano.elastic.checking.sources import Module

__all__ = ["Script", "keyword", "names_in"]

Node = TypeVar("Node", bound=ast.AST)

_SHOWN = 70
_SILENCED = re.compile(r"#\s*kfp-volcano:\s*ignore\[([A-Z0-9, ]+)\]")
_FRAMEWORKS = frozenset(
    {"torch", "tensorflow", "jax", "keras", "transformers", "lightning", "pytorch_lightning", "accelerate"}
)


class Script:
    """A script with its modules.

    Args:
        modules: the script first.
        live: whether it trains with `Training`; by default whether it makes one.
    """

    def __init__(self, modules: Sequence[Module], *, live: bool | None = None) -> None:
        self.flow = Flow(modules)
        self.live = self.makes_training if live is None else live

    @cached_property
    def makes_training(self) -> bool:
        """Whether it makes the live runtime's `Training`."""
        return any(name in facts.TRAINING for _, name in self.calls())

    @cached_property
    def distributed(self) -> bool:
        """Whether it asks for ranks or sizes, or starts a group: more than one process is meant to run it."""
        words = ("init_process_group", "MirroredStrategy", "Accelerator", "hvd.init", "deepspeed.initialize", "prepare")
        return any(
            self.flow.tags(call) & (Tag.RANK | Tag.WORLD | Tag.SAMPLER | Tag.SHARDED) or name.endswith(words)
            for call, name in self.calls()
        ) or any(
            self.flow.tags(node) & (Tag.RANK | Tag.WORLD)
            for node in self.nodes(ast.Subscript)
            if self.flow.dotted(node.value).endswith("environ")
        )

    @cached_property
    def learns(self) -> bool:
        """Whether it uses a framework for training."""
        return any(
            name.partition(".")[0] in _FRAMEWORKS for module in self.flow.modules for name in module.imports.values()
        )

    @cached_property
    def trained(self) -> list[ast.Call]:
        """Where gradients are computed or a library's whole training is started."""
        found = []
        for call, name in self.calls():
            last = name.rpartition(".")[2]
            if (
                last in ("backward", "manual_backward", "minimize", "apply_gradients", "train_step", "train_on_batch")
            ) or (last in ("fit", "train") and isinstance(call.func, ast.Attribute) and (call.args or call.keywords)):
                found.append(call)
        return found

    @cached_property
    def live_loops(self) -> list[ast.For | ast.AsyncFor]:
        """The loops over the shares of a `Training`."""
        loops: list[ast.For | ast.AsyncFor] = [*self.nodes(ast.For), *self.nodes(ast.AsyncFor)]
        return [loop for loop in loops if Tag.TRAINING in self.flow.tags(loop.iter)]

    def in_live_loop(self, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a node runs in the body of a loop over shares, directly or by a call there."""
        if any(loop in self.live_loops for loop in self.flow.loops(node)):
            return True
        function = self.flow.function(node)
        if function is None or function in seen:
            return False
        return any(self.in_live_loop(call, seen | {function}) for call in self.flow.callers(function))

    def training_loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node in which a gradient is computed, directly or by a call."""
        for loop in self.flow.loops(node):
            if any(self.trains(each) for each in ast.walk(loop) if isinstance(each, ast.Call)):
                return loop
        return None

    def trains(self, call: ast.Call, depth: int = 3) -> bool:
        """Whether a call computes a gradient."""
        if call in self.trained:
            return True
        return depth > 0 and any(
            self.trains(each, depth - 1)
            for function in self.flow.called(call)
            for each in ast.walk(function)
            if isinstance(each, ast.Call)
        )

    @cached_property
    def signal_calls(self) -> list[tuple[ast.Call, ast.expr]]:
        """Where a handler of SIGTERM is set, with the handler."""
        found = []
        for call, name in self.calls("signal", "add_signal_handler", "sigaction"):
            if len(call.args) > 1 and (name == "signal.signal" or name.endswith("add_signal_handler")):
                number = call.args[0]
                loops = [loop for loop in self.flow.loops(call) if isinstance(loop, ast.For)]
                among = [loop.iter for loop in loops if ast.unparse(loop.target) == ast.unparse(number)]
                if any("SIGTERM" in ast.unparse(each) for each in (number, *among)):
                    found.append((call, call.args[1]))
        return found

    @cached_property
    def signal_handlers(self) -> list[ast.AST]:
        """The functions that SIGTERM calls."""
        return [function for _, handler in self.signal_calls for function in self.handlers_of(handler)]

    def handlers_of(self, handler: ast.expr) -> list[ast.AST]:
        """The functions of the script that an argument names; a lambda is one itself."""
        if isinstance(handler, ast.Lambda):
            return [handler]
        name = self.flow.dotted(handler).rpartition(".")[2].removesuffix("()")
        return list(self.flow.functions.get(name, []))

    @cached_property
    def _calls(self) -> list[tuple[ast.Call, str]]:
        return [(call, self.flow.dotted(call.func)) for call in self.flow.calls]

    def calls(self, *lasts: str) -> Iterator[tuple[ast.Call, str]]:
        """Calls with their dotted names: all, or those whose last word is one of these."""
        for call, name in self._calls:
            if not lasts or name.rpartition(".")[2] in lasts:
                yield call, name

    @cached_property
    def _nodes(self) -> dict[type, list[ast.AST]]:
        found: dict[type, list[ast.AST]] = {}
        for module in self.flow.modules:
            for node in ast.walk(module.tree):
                found.setdefault(type(node), []).append(node)
        return found

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of a kind."""
        return self._nodes.get(kind, [])  # type: ignore[return-value]

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Every target with its value, tuples taken apart."""
        for node in self.nodes(ast.Assign):
            for target in node.targets:
                yield from pairs(target, node.value)
        bound: list[ast.AnnAssign | ast.NamedExpr] = [*self.nodes(ast.AnnAssign), *self.nodes(ast.NamedExpr)]
        for each in bound:
            if each.value is not None:
                yield each.target, each.value

    def known(self, value: ast.expr) -> ast.expr:
        """What a value stands for: of a name that is bound once, what it is bound to."""
        if not isinstance(value, ast.Name):
            return value
        bound = [part for target, part in self.assignments() if isinstance(target, ast.Name) and target.id == value.id]
        return bound[0] if len(bound) == 1 else value

    def found(self, node: ast.AST, code: str, what: str) -> Finding:
        """A finding at a node."""
        module = self.flow.module(node)
        return Finding(path=module.shown, line=getattr(node, "lineno", 1), code=code, what=what)

    def silenced(self, finding: Finding) -> bool:
        """Whether the line says `# kfp-volcano: ignore[CODE]`."""
        for module in self.flow.modules:
            if module.shown == finding.path and 0 < finding.line <= len(module.lines):
                match = _SILENCED.search(module.lines[finding.line - 1])
                return bool(match) and finding.code in re.split(r"[ ,]+", match[1])  # type: ignore[index]
        return False

    @staticmethod
    def shown(node: ast.AST) -> str:
        """A node as it is written, shortened."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of a call's keyword, the first of these that there is."""
    return next((each.value for each in call.keywords if each.arg in names), None)


def names_in(node: ast.AST) -> set[str]:
    """The names that are read or written in a node, attributes by their last word."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }
