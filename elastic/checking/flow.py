# SPDX-License-Identifier: Apache-2.0
"""Follows values through a script: what each name, attribute, argument and result may be.

A value's tags are what its sources say (`facts`), carried along assignments, arguments, results and attributes, in
whatever order they run: a name that ever holds a rank holds one. Attributes are told apart by name alone, whoever's
they are, and keys of mappings are attributes. That is coarse, but the names of a training script are few.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.checking import facts
from kfp_volcano.elastic.checking.facts import Tag
from kfp_volcano.elastic.checking.places import FUNCTIONS, Places, arguments_of, decorated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kfp_volcano.elastic.checking.sources import Module

__all__ = ["Flow"]

_CARRIES = Tag.RANK | Tag.WORLD | Tag.DIVIDED | Tag.LAST_LR | Tag.SCALED_LR | Tag.COUNTED
"""What arithmetic and conversions carry along."""
_CONVERSIONS = frozenset(
    {
        *("int", "float", "str", "bool", "max", "min", "abs", "round", "sum", "pow", "divmod", "sqrt", "log", "log2"),
        *(
            "ceil",
            "floor",
            "next",
            "iter",
            "enumerate",
            "tqdm",
            "zip",
            "list",
            "tuple",
            "sorted",
            "reversed",
            "cast",
            "loads",
        ),
    }
)
_SAME_OBJECT = frozenset(
    {
        *("to", "cuda", "cpu", "train", "eval", "float", "half", "double", "bfloat16", "compile", "share_memory"),
        *("DistributedDataParallel", "DDP", "DataParallel", "items", "values", "keys", "named_parameters"),
        *("prepare", "prepare_model", "prepare_optimizer", "setup", "setup_module"),
    }
)
"""Methods and wrappers whose result is what they were given, as far as it matters here."""
_MOST_ROUNDS = 12


class Flow(Places):
    """The values of a script's modules."""

    def __init__(self, modules: Sequence[Module]) -> None:
        super().__init__(modules)
        self._names: dict[tuple[ast.AST, str], Tag] = {}
        self._attributes: dict[str, Tag] = {}
        self._results: dict[ast.AST, Tag] = {}
        self._of: dict[type, Callable[[Any], Tag]] = {
            ast.Name: self._lookup,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.BinOp: self._arithmetic,
            **dict.fromkeys((ast.Compare, ast.UnaryOp, ast.FormattedValue, ast.JoinedStr), self._computed),
            **dict.fromkeys((ast.Await, ast.Starred, ast.NamedExpr), lambda node: self.tags(node.value)),
            # What a condition on ranks chooses is no rank, but differs by rank.
            ast.IfExp: lambda node: self.tags(node.body) | self.tags(node.orelse) | (self.tags(node.test) & Tag.RANK),
            **dict.fromkeys((ast.BoolOp, ast.Tuple, ast.List, ast.Set, ast.Dict), self._any_part),
        }
        self._learns: dict[type, Callable[[Any], None]] = {
            ast.Assign: self._learn_assignment,
            ast.AnnAssign: self._learn_assignment,
            ast.NamedExpr: self._learn_assignment,
            ast.AugAssign: lambda node: self._give(
                node.target, self._arithmetic(ast.BinOp(left=node.target, op=node.op, right=node.value))
            ),
            **dict.fromkeys((ast.For, ast.AsyncFor, ast.comprehension), self._iterate),
            **dict.fromkeys((ast.With, ast.AsyncWith), self._learn_context),
            ast.Return: self._learn_result,
            ast.Call: self._pass,
            ast.Dict: self._learn_keys,
        }
        for functions in self.functions.values():
            for function in functions:
                for argument in arguments_of(function):
                    self._bind(function, argument.arg, facts.PARAMETERS.get(argument.arg, Tag.NONE))
        self._changed = False
        for _ in range(_MOST_ROUNDS):
            self._changed = False
            for module in self.modules:
                for node in ast.walk(module.tree):
                    if type(node) in self._learns:
                        self._learns[type(node)](node)
            if not self._changed:
                break

    def on_some_ranks(self, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a node runs on some ranks only: its condition, or that of every call of its function, tells ranks."""
        if any(Tag.RANK in self.tags(test) for test, _ in self.conditions(node)):
            return True
        function = self.function(node)
        if function is None or function in seen:
            return False
        if self._wrapped_for_some(function):
            return True
        calls = list(self.callers(function))
        return bool(calls) and all(self.on_some_ranks(call, seen | {function}) for call in calls)

    def _wrapped_for_some(self, function: ast.AST) -> bool:
        """Whether a decorator calls a function on some ranks only: a library's, or one of the script's."""
        if decorated(function, *facts.FIRST_RANK_DECORATORS):
            return True
        for name in (ast.unparse(each) for each in getattr(function, "decorator_list", [])):
            for wrapper in self.functions.get(name, []):
                inner = {each.arg for each in arguments_of(wrapper)}
                calls = [each for each in ast.walk(wrapper) if isinstance(each, ast.Call)]
                own = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id in inner]
                if own and all(any(Tag.RANK in self.tags(test) for test, _ in self.conditions(each)) for each in own):
                    return True
        return False

    # ------------------------------------------------------------------ what things are

    def tags(self, node: ast.AST | None) -> Tag:
        """What an expression's value may be."""
        of = self._of.get(type(node))
        return of(node) if of else Tag.NONE

    def result(self, function: ast.AST) -> Tag:
        """What a function of the script may return."""
        return self._results.get(function, Tag.NONE)

    # ------------------------------------------------------------------ expressions

    def _lookup(self, node: ast.Name) -> Tag:
        for scope in self.scopes(node):
            if (scope, node.id) in self._names:
                return self._names[scope, node.id]
        module = self.module(node)
        source = module.imports.get(node.id, "")
        if source:
            owner, _, name = source.rpartition(".")
            if owner in self._by_name:
                return self._names.get((self._by_name[owner].tree, name), Tag.NONE)
        for star in module.stars:
            if star in self._by_name and (self._by_name[star].tree, node.id) in self._names:
                return self._names[self._by_name[star].tree, node.id]
        return Tag.NONE

    def _attribute(self, node: ast.Attribute) -> Tag:
        base = self.tags(node.value)
        if Tag.TRAINING in base:
            return {"first": Tag.RANK, "workers": Tag.WORLD}.get(node.attr, Tag.NONE)
        if Tag.SHARE in base:
            return {"committed": Tag.COUNTED}.get(node.attr, Tag.SHARE)
        known = self._attributes.get(node.attr)
        if known is not None and known:
            return known
        if isinstance(node.value, ast.Name):
            owner = self.module(node).imports.get(node.value.id, "")
            if owner in self._by_name:
                return self._names.get((self._by_name[owner].tree, node.attr), Tag.NONE)
        if node.attr == "lr":
            return Tag.LAST_LR if Tag.OPTIMIZER in base else Tag.NONE
        return facts.ATTRIBUTES.get(node.attr, Tag.NONE) | (base & (Tag.MODEL | Tag.SHARDED))

    def _subscript(self, node: ast.Subscript) -> Tag:
        key = self.text(node.slice)
        if key:
            if self.dotted(node.value).endswith("environ"):
                return facts.variable(key)
            if key == "lr":
                return Tag.LAST_LR
            return self._keyed(key) | (self.tags(node.value) & facts.TF_CONFIG.get(key, Tag.NONE))
        if isinstance(node.slice, ast.Slice):
            return self.tags(node.value) & (Tag.LOADER | Tag.SHARE)
        return self.tags(node.value)

    def _call(self, node: ast.Call) -> Tag:
        name = self.dotted(node.func)
        last = name.rpartition(".")[2]
        if name in facts.TRAINING:
            return Tag.TRAINING
        key = self.text(node.args[0]) if last in ("getenv", "get") and node.args else ""
        if key:
            variable = last == "getenv" or name.endswith("environ.get")
            return facts.variable(key) if variable else self._keyed(key)
        owner = self.tags(node.func.value) if isinstance(node.func, ast.Attribute) else Tag.NONE
        if Tag.TRAINING in owner:
            return {"step": Tag.COUNTED, "loader": Tag.TRAINING}.get(last, Tag.NONE)
        local = self.called(node)
        if local:
            return _union(self._results.get(each, Tag.NONE) for each in local)
        known = facts.CALLS.get(name, facts.CALLS.get(last))
        return self._of_library(node, name, owner) if known is None else known | self._handed_on(node, known, owner)

    def _handed_on(self, node: ast.Call, known: Tag, owner: Tag) -> Tag:
        """What a result has of the arguments and the owner: a wrapper is what it wraps, a state as sharded as that."""
        if known & Tag.STATE:
            return owner & self._parted(node)
        return self._any(node.args) & (Tag.MODEL | Tag.SHARDED | Tag.OPTIMIZER) if known & Tag.SHARDED else Tag.NONE

    def _of_library(self, node: ast.Call, name: str, owner: Tag) -> Tag:
        """What a function of some library returns, by what kind of function it is."""
        last, arguments = name.rpartition(".")[2], self._any(node.args)
        if facts.scheduler(name) or facts.optimizer(name):
            return Tag.SCHEDULER if facts.scheduler(name) else Tag.OPTIMIZER | (arguments & Tag.SHARDED)
        if name == "divmod" and len(node.args) > 1 and Tag.WORLD in self.tags(node.args[1]):
            return arguments & _CARRIES | Tag.DIVIDED
        if last in _CONVERSIONS and not (isinstance(node.func, ast.Attribute) and owner):
            return arguments
        if last in _SAME_OBJECT:
            return owner | (arguments & ~_CARRIES)  # a tensor on the rank's device is no rank
        if name.startswith(("math.", "numpy.")):
            return (arguments | owner) & _CARRIES
        named = self._any([keyword.value for keyword in node.keywords]) if name == "dict" else Tag.NONE
        counted = arguments & Tag.WORLD if name == "len" else Tag.NONE
        return named | counted | (Tag.MODEL if self._makes_model(name) else Tag.NONE)

    def _parted(self, node: ast.Call) -> Tag:
        """Whether a `state_dict()` is of what one rank holds; not within FSDP's context that makes it whole."""
        for each in self.ancestors(node):
            for item in each.items if isinstance(each, (ast.With, ast.AsyncWith)) else []:
                context = self.dotted(item.context_expr).removesuffix("()")
                if context.endswith(("state_dict_type", "summon_full_params")):
                    return Tag.NONE
        return Tag.SHARDED

    def _makes_model(self, name: str) -> bool:
        last = name.rpartition(".")[2]
        if last in self.classes:
            return any("Module" in self.dotted(base) for base in self.classes[last].bases)
        return name.startswith(("torch.nn.", "torchvision.models", "timm.")) or last in (
            "from_pretrained",
            "from_config",
        )

    def _arithmetic(self, node: ast.BinOp) -> Tag:
        left, right = self.tags(node.left) & _CARRIES, self.tags(node.right) & _CARRIES
        if isinstance(node.op, (ast.Div, ast.FloorDiv)) and Tag.WORLD in right and Tag.LAST_LR not in left:
            return left | right | Tag.DIVIDED if Tag.WORLD not in left else (left | right)
        tags = left | right
        if isinstance(node.op, ast.Mult) and Tag.WORLD in tags:
            tags &= ~Tag.DIVIDED
        if isinstance(node.op, (ast.Mult, ast.Div, ast.Pow)) and Tag.LAST_LR in tags:
            tags |= Tag.SCALED_LR
        return tags

    def _computed(self, node: ast.AST) -> Tag:
        return self._any(list(ast.iter_child_nodes(node))) & _CARRIES

    def _any_part(self, node: ast.AST) -> Tag:
        return self._any(list(ast.iter_child_nodes(node)))

    def _any(self, nodes: Sequence[ast.AST]) -> Tag:
        return _union(self.tags(node) for node in nodes)

    def _keyed(self, key: str) -> Tag:
        """What a mapping holds under a key."""
        return self._attributes.get(key, Tag.NONE) or facts.ATTRIBUTES.get(key, Tag.NONE)

    # ------------------------------------------------------------------ learning

    def _learn_assignment(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value)

    def _learn_context(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._give(item.optional_vars, self.tags(item.context_expr))

    def _learn_result(self, node: ast.Return) -> None:
        function, tags = self.function(node), self.tags(node.value)
        if function is not None and tags & ~self._results.get(function, Tag.NONE):
            self._results[function] = tags | self._results.get(function, Tag.NONE)
            self._changed = True
        if isinstance(function, ast.FunctionDef) and decorated(function, "property", "cached_property"):
            self._attach(function.name, tags)

    def _learn_keys(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._attach(key.value, self.tags(value))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = self._parts(value, len(target.elts))
            for each, part in zip(target.elts, values, strict=False):
                self._give(each, part)
            return
        self._give(target, self.tags(value))

    def _parts(self, value: ast.expr, count: int) -> list[Tag]:
        """The tags of each of the names that a value is unpacked to."""
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == count:
            return [self.tags(each) for each in value.elts]
        if isinstance(value, ast.Call):
            last = self.dotted(value.func).rpartition(".")[2]
            if last in ("prepare", "setup") and len(value.args) == count:  # of accelerate and Fabric
                return [self.tags(each) for each in value.args]
            if last == "initialize" and Tag.SHARDED in self.tags(value):  # deepspeed: engine, optimizer, loader …
                parts = [Tag.SHARDED | Tag.MODEL, Tag.SHARDED | Tag.OPTIMIZER, Tag.LOADER, Tag.SCHEDULER]
                return parts[:count]
            local = self.called(value)
            returned = [node.value for each in local for node in ast.walk(each) if isinstance(node, ast.Return)]
            tuples = [each for each in returned if isinstance(each, ast.Tuple) and len(each.elts) == count]
            if tuples:
                return [_union(self.tags(each.elts[place]) for each in tuples) for place in range(count)]
        return [self.tags(value)] * count

    def _iterate(self, loop: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        target, iterated = loop.target, loop.iter
        tags = self.tags(iterated)
        if Tag.TRAINING in tags:
            tags = (tags & ~Tag.TRAINING) | Tag.SHARE
            if isinstance(iterated, ast.Call) and self.dotted(iterated.func).rpartition(".")[2] == "enumerate":
                if isinstance(target, ast.Tuple) and len(target.elts) == 2:  # noqa: PLR2004 - number and share
                    self._give(target.elts[1], tags)
                return
        else:
            tags &= Tag.MODEL | Tag.SHARDED | Tag.OPTIMIZER
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            self._give(each, tags)

    def _give(self, target: ast.expr, tags: Tag) -> None:
        if isinstance(target, ast.Name):
            self._bind(self._home(target), target.id, tags)
        elif isinstance(target, ast.Attribute):
            self._attach(target.attr, tags)
        elif isinstance(target, ast.Subscript) and self.text(target.slice):
            self._attach(self.text(target.slice), tags)
        elif isinstance(target, ast.Starred):
            self._give(target.value, tags)

    def _pass(self, call: ast.Call) -> None:
        """Arguments to parameters; and what a call makes of an object that it changes."""
        name = self.dotted(call.func)
        last = name.rpartition(".")[2]
        if last in ("fully_shard", "parallelize_module") and call.args and not self.functions.get(last):
            self._give(call.args[0], self.tags(call.args[0]) | Tag.SHARDED | Tag.MODEL)
        functions: list[ast.AST] = [*self.called(call)]
        if last in self.classes:
            made = self.classes[last].body
            functions += [each for each in made if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        for function in functions:
            self._hand(call, function)
        if (last in self.classes and not functions) or last == "SimpleNamespace":  # fields are keywords
            for keyword in call.keywords:
                self._attach(keyword.arg or "", self.tags(keyword.value))

    def _hand(self, call: ast.Call, function: ast.AST) -> None:
        bound = isinstance(self._parents.get(function), ast.ClassDef) and not decorated(function, "staticmethod")
        names = [each.arg for each in arguments_of(function)][1 if bound else 0 :]
        for parameter, value in zip(names, call.args, strict=False):
            if isinstance(value, ast.Starred):
                break
            self._bind(function, parameter, self.tags(value))
        for keyword in call.keywords:
            if keyword.arg in names:
                self._bind(function, keyword.arg, self.tags(keyword.value))

    def _bind(self, scope: ast.AST, name: str, tags: Tag) -> None:
        before = self._names.get((scope, name))
        after = tags if before is None else before | tags
        if before != after:
            self._names[scope, name] = after
            self._changed = True

    def _attach(self, name: str, tags: Tag) -> None:
        before = self._attributes.get(name, Tag.NONE)
        if name != "lr" and before | tags != before:
            self._attributes[name] = before | tags
            self._changed = True

    def _home(self, node: ast.Name) -> ast.AST:
        """The scope that an assignment to a name changes."""
        scopes = list(self.scopes(node))
        first = scopes[0]
        if not isinstance(first, FUNCTIONS) or isinstance(first, ast.Lambda):
            return first
        for each in ast.walk(first):
            if isinstance(each, ast.Global) and node.id in each.names:
                return scopes[-1]
            if isinstance(each, ast.Nonlocal) and node.id in each.names:
                return next((scope for scope in scopes[1:] if (scope, node.id) in self._names), first)
        return first


def _union(found: Iterable[Tag]) -> Tag:
    tags = Tag.NONE
    for each in found:
        tags |= each
    return tags
