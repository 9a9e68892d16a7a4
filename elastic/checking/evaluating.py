# SPDX-License-Identifier: Apache-2.0
"""What a script has for evaluation: whose samples may be shared out by rank, for none of them trains."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.places import FUNCTIONS

if TYPE_CHECKING:
    from kfp_volcano.elastic.checking.script import Script

__all__ = ["for_evaluation"]

_NAMED = re.compile(r"(^|_)(val|valid|validation|validate|test|tests|eval|evaluate|evaluation|heldout|held_out)(_|$)")
_WITHOUT_GRADIENT = ("no_grad", "inference_mode")


def for_evaluation(script: Script, node: ast.AST) -> bool:
    """Whether what a node makes or counts is only evaluated on.

    It stands where gradients are off or in a function for it, is called so, or is a loader that no training uses.
    """
    if _without_gradient(script, node):
        return True
    statement = script.flow.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = [name for target in targets for name in _names(target)]
    return bool(names) and all(_NAMED.search(name.lower()) or _loader_without_training(script, name) for name in names)


def _without_gradient(script: Script, node: ast.AST) -> bool:
    """Whether gradients are off where a node stands, or it is part of a function for evaluation."""
    for each in script.flow.ancestors(node):
        contexts = [item.context_expr for item in each.items] if isinstance(each, (ast.With, ast.AsyncWith)) else []
        if isinstance(each, FUNCTIONS):
            contexts = list(getattr(each, "decorator_list", []))
            if _NAMED.search(getattr(each, "name", "")) and not _trains(script, each):
                return True
        if any(script.flow.dotted(each).removesuffix("()").endswith(_WITHOUT_GRADIENT) for each in contexts):
            return True
    return False


def _loader_without_training(script: Script, name: str) -> bool:
    every: list[ast.For | ast.AsyncFor] = [*script.nodes(ast.For), *script.nodes(ast.AsyncFor)]
    loops = [
        loop
        for loop in every
        if Tag.LOADER in script.flow.tags(loop.iter) and any(_names(each) == [name] for each in ast.walk(loop.iter))
    ]
    return bool(loops) and not any(_trains(script, loop) for loop in loops)


def _trains(script: Script, node: ast.AST) -> bool:
    return any(script.trains(each) for each in ast.walk(node) if isinstance(each, ast.Call))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return [name for each in node.elts for name in _names(each)]
    return [node.id] if isinstance(node, ast.Name) else [node.attr] if isinstance(node, ast.Attribute) else []
