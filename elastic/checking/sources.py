# SPDX-License-Identifier: Apache-2.0
"""A script and the modules beside it that it imports, as syntax trees."""

from __future__ import annotations

import ast
import tokenize
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Module", "read_script"]

_MOST_MODULES = 200


@dataclass(eq=False, slots=True)
class Module:
    """One file."""

    name: str
    """Dotted, as the script imports it; `__main__` for the script itself."""
    path: Path
    shown: str
    """Its path in messages."""
    tree: ast.Module
    lines: list[str]
    imports: dict[str, str] = field(default_factory=dict)
    """What a name stands for: `dist` for `torch.distributed`, wherever in the file it was imported."""
    stars: list[str] = field(default_factory=list)
    """Modules from which everything was imported."""


def read_script(script: Path) -> list[Module]:
    """The script first, then every module that it imports, directly or not, from its own folder.

    Raises SpecError where the script cannot be read or is not Python; so for its modules.
    """
    root = script.parent
    found: dict[Path, Module] = {}
    problems: list[Problem] = []
    waiting = [("__main__", script)]
    while waiting:
        name, path = waiting.pop(0)
        if path in found or len(found) >= _MOST_MODULES:
            continue
        try:
            module = _read(name, path)
        except SpecError as error:
            problems += error.problems
            continue
        found[path] = module
        waiting += _local(module, root)
    if problems:
        raise SpecError(problems, source=str(script))
    return list(found.values())


def _read(name: str, path: Path) -> Module:
    shown = str(path)
    try:
        with tokenize.open(path) as file:  # minds the encoding that a file declares
            text = file.read()
        tree = ast.parse(text, filename=shown)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", source=shown) from error
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise SpecError([Problem(where, f"is not Python: {error.msg}")], source=where) from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise SpecError(f"is not Python: {error}", source=shown) from error
    module = Module(name=name, path=path, shown=shown, tree=tree, lines=text.splitlines())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, package)
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(source)
                else:
                    module.imports[alias.asname or alias.name] = f"{source}.{alias.name}".lstrip(".")
    return module


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that `from … import` names, with the package of who imports where it is relative."""
    if not node.level:
        return node.module or ""
    parents = package.split(".") if package and package != "__main__" else []
    kept = parents[: len(parents) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _local(module: Module, root: Path) -> Iterator[tuple[str, Path]]:
    """The files of the script's folder that a module's imports may mean."""
    names = {*module.imports.values(), *module.stars}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    for name in sorted(names):
        parts = name.split(".")
        # `from a.b import c`: c may be a module or a name in it, and the packages above it run too.
        for length in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:length])
            for candidate in (path.with_suffix(".py"), path / "__init__.py"):
                if candidate.is_file():
                    yield ".".join(parts[:length]), candidate
