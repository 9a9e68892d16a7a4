# SPDX-License-Identifier: Apache-2.0
"""Where things are in a script: what a node stands in, which function a call means, under which conditions it runs."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.elastic.checking.sources import Module

__all__ = ["FUNCTIONS", "Function", "Loop", "Places", "arguments_of", "decorated", "pairs"]

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Module)
Loop = ast.For | ast.AsyncFor | ast.While


class Places:
    """The structure of a script's modules."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules = list(modules)
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
        """By name, methods included."""
        self.classes: dict[str, ast.ClassDef] = {}
        self.calls: list[ast.Call] = []
        self._by_name = {module.name: module for module in modules}
        self._module_of: dict[ast.AST, Module] = {module.tree: module for module in modules}
        self._parents: dict[ast.AST, ast.AST] = {}
        local = {root_of(module.name) for module in modules}
        self._foreign = {module.tree: {root_of(name) for name in module.imports.values()} - local for module in modules}
        self._constants: dict[tuple[ast.AST, str], str] = {}
        self._defaults: dict[str, str] = {}
        """Of options on the command line, by their attribute of the parsed arguments."""
        self._aliases: dict[tuple[ast.AST, str], str] = {}
        self._index()

    # ------------------------------------------------------------------ where things are

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node stands in directly; None of a module."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, from the inside out."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def module(self, node: ast.AST) -> Module:
        """The file that a node is in."""
        top = node
        for top in self.ancestors(node):  # noqa: B007 - the last one is wanted
            pass
        return self._module_of[top]

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((each for each in self.ancestors(node) if isinstance(each, FUNCTIONS)), None)

    def statement(self, node: ast.AST) -> ast.AST:
        """The statement that a node is part of."""
        return next((each for each in (node, *self.ancestors(node)) if isinstance(each, ast.stmt)), node)

    def loops(self, node: ast.AST) -> list[Loop]:
        """The loops around a node in its function, from the inside out."""
        found: list[Loop] = []
        below = node
        for each in self.ancestors(node):
            if isinstance(each, FUNCTIONS):
                break
            if isinstance(each, ast.While) or (isinstance(each, (ast.For, ast.AsyncFor)) and below is not each.iter):
                found.append(each)
            below = each
        return found

    def runs_in_loop(self, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a node runs again and again: in a loop, or in a function that is called in one."""
        if self.loops(node):
            return True
        function = self.function(node)
        if function is None or function in seen:
            return False
        return any(self.runs_in_loop(call, seen | {function}) for call in self.callers(function))

    def callers(self, function: ast.AST) -> Iterator[ast.Call]:
        """The calls of a function of the script, as far as its name says."""
        for call in self.calls:
            if function in self.called(call):
                yield call

    def called(self, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The script's functions that a call may mean."""
        name = self.dotted(call.func)
        last = name.rpartition(".")[2]
        found = self.functions.get(last, [])
        if not found:
            return []
        if isinstance(call.func, ast.Name):
            return [each for each in found if not isinstance(self._parents.get(each), ast.ClassDef)]
        if isinstance(call.func, ast.Attribute) and root_of(name) in self._foreign[self.module(call).tree]:
            return []
        return found

    def conditions(self, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
        """The conditions under which a node runs within its function, and whether they hold.

        They are the `if`s around it, and the guards before it (`if rank != 0: return`).
        """
        below = node
        for each in self.ancestors(node):
            if isinstance(each, (ast.If, ast.IfExp)):
                body = each.body if isinstance(each.body, list) else [each.body]
                other = each.orelse if isinstance(each.orelse, list) else [each.orelse]
                if below in body or below in other:
                    yield each.test, below in body
            elif isinstance(each, ast.BoolOp) and below in each.values:
                for earlier in each.values[: each.values.index(below)]:
                    yield earlier, isinstance(each.op, ast.And)
            yield from _guards(each, below)
            if isinstance(each, FUNCTIONS):
                return
            below = each

    def dotted(self, node: ast.AST) -> str:
        """The dotted name of a function or class, with imports resolved: `torch.distributed.get_rank`."""
        if isinstance(node, ast.Name):
            alias = self._alias(node)
            if alias:
                return alias
            module = self.module(node)
            return module.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else node.attr
        if isinstance(node, ast.Call):
            return f"{self.dotted(node.func)}()"
        if isinstance(node, ast.Subscript):
            return f"{self.dotted(node.value)}[]"
        return ""

    def text(self, node: ast.AST | None) -> str:
        """The constant string that an expression is, as far as that can be seen."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            for scope in self.scopes(node):
                if (scope, node.id) in self._constants:
                    return self._constants[scope, node.id]
        return self._defaults.get(node.attr, "") if isinstance(node, ast.Attribute) else ""

    # ------------------------------------------------------------------ names and files

    def _index(self) -> None:
        for module in self.modules:
            for node in ast.walk(module.tree):
                for child in ast.iter_child_nodes(node):
                    self._parents[child] = node
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions[node.name].append(node)
                elif isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node
                elif isinstance(node, ast.Call):
                    self.calls.append(node)
                    self._name_default(node)
                elif isinstance(node, ast.Assign):
                    self._name_constants(node)

    def _name_constants(self, node: ast.Assign) -> None:
        """`KEY = "RANK"`, and `Loader = torch.utils.data.DataLoader`."""
        for target, value in (pair for each in node.targets for pair in pairs(each, node.value)):
            if not isinstance(target, ast.Name):
                continue
            scope = next(self.scopes(target))
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                self._constants[scope, target.id] = value.value
            elif isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
                name = self.dotted(_partial(self, value) if isinstance(value, ast.Call) else value)
                if root_of(name) in self._foreign[self.module(node).tree] or name in self.functions:
                    self._aliases[scope, target.id] = name

    def _name_default(self, call: ast.Call) -> None:
        """`add_argument("--arch", default="resnet18")`."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
            return
        options = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        for keyword in call.keywords:
            if (
                keyword.arg == "default"
                and isinstance(keyword.value, ast.Constant)
                and isinstance(keyword.value.value, str)
            ):
                for option in options:
                    self._defaults[option.lstrip("-").replace("-", "_")] = keyword.value.value

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """The scopes in which a name is looked for, from the inside out; a class's names are not its methods'."""
        inside = False
        for each in self.ancestors(node):
            if isinstance(each, ast.ClassDef):
                if not inside:
                    yield each
            elif isinstance(each, _SCOPES):
                yield each
                inside = True

    def _alias(self, node: ast.Name) -> str:
        for scope in self.scopes(node):
            if (scope, node.id) in self._aliases:
                return self._aliases[scope, node.id]
        return ""


def _partial(places: Places, call: ast.Call) -> ast.AST:
    """The function that `functools.partial` is given, of which the result is another name."""
    return call.args[0] if call.args and places.dotted(call.func) == "functools.partial" else ast.Constant(value=None)


def root_of(name: str) -> str:
    """The first word of a dotted name."""
    return name.partition(".")[0].removesuffix("()")


def arguments_of(function: ast.AST) -> list[ast.arg]:
    """The named parameters of a function."""
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value, tuples taken apart as far as both sides are written out."""
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for each, part in zip(target.elts, value.elts, strict=True):
                yield from pairs(each, part)
        return
    yield target, value


def decorated(function: ast.AST, *names: str) -> bool:
    """Whether a function has one of these decorators, `functools.cached_property` by its last word."""
    written = [ast.unparse(each).rpartition(".")[2] for each in getattr(function, "decorator_list", [])]
    return any(name in names for name in written)


def _guards(outer: ast.AST, below: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions before a statement, in its own block, that end the function or the turn where they hold."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(outer, block, None)
        if isinstance(statements, list) and below in statements:
            for earlier in statements[: statements.index(below)]:
                if isinstance(earlier, ast.If) and _leaves(earlier.body) and not earlier.orelse:
                    yield earlier.test, False


def _leaves(block: Sequence[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], (ast.Return, ast.Continue, ast.Raise, ast.Break))
