# SPDX-License-Identifier: Apache-2.0
"""Writes the reference pages that follow from the code: `python docs/reference.py`, which scripts/docs calls."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import griffe
from prometheus_client import CollectorRegistry

from kfp_volcano import errors
from kfp_volcano.cli import main
from kfp_volcano.elastic.autoscaler.telling.telemetry import Telemetry
from kfp_volcano.schemas.structure import child_rule, load_schema, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.structure import Schema

__all__ = ["PAGES", "WRITTEN"]

WRITTEN = "<!-- Written by docs/reference.py from the code. -->\n"
_HERE = Path(__file__).parent / "reference"
_SOURCES = Path(__file__).parents[1] / "src"
_KINDS = {
    "TrainingJob": "training-job.v1",
    "QueueTree": "queue-tree.v1",
    "Policy": "policy.v1",
    "GPUPools": "gpu-pools.v1",
    "ResourceProfiles": "resource-profiles.v1",
    "Scenario": "scenario.v1",
}
_KUBERNETES = {"podPatch", "affinity", "nodeAffinity", "ephemeral", "securityContext", "containerSecurityContext"}
"""Fields whose form is Kubernetes' own."""
_CODES = {
    0: "done",
    1: "the training failed, or the answer is no",
    2: "wrong use or input",
    3: "the cluster could not be reached or refused",
    4: "the run was terminated (`submit`)",
    130: "interrupted",
    141: "whoever read the output has gone",
}


def commands() -> str:
    """Every command with its help and options."""
    intro = "All options of all commands, as `--help` tells them. What they share: [Command line](../cli.md).\n"
    return _joined(["# Commands\n", intro, *_command("kfp-volcano", main)])


def fields() -> str:
    """Every field of the documents that people write."""
    lines = [
        "# Fields\n",
        (
            "All fields of the documents that people write, from their JSON Schemas. `kfp-volcano explain FIELD`\n"
            "tells the same on the terminal, and `kfp-volcano explain --schema KIND` prints a schema.\n\n"
            "`*` stands for a name of one's own, `[]` for an entry of a list.\n"
        ),
    ]
    for kind, schema in _KINDS.items():
        root = load_schema(schema)
        lines += [f"## {kind}\n", f"{root.get('description', '')}\n", "| field | | |", "|---|---|---|"]
        lines += [*_fields(root, root, ()), ""]
    return _joined(lines)


def names() -> str:
    """Annotations, labels, variables and the other names on a cluster, with what the code says of each."""
    module = griffe.load("kfp_volcano.schemas.names", search_paths=[str(_SOURCES)])
    groups: dict[str, list[str]] = {"Annotations and labels": [], "Environment": [], "Ports": [], "Others": []}
    for name, member in module.members.items():
        if name.startswith("_") or not name.isupper() or not member.is_attribute:
            continue
        value = getattr(__import__("kfp_volcano.schemas.names", fromlist=[name]), name)
        group = (
            "Environment"
            if str(value).startswith("KFP_VOLCANO_")
            else "Ports"
            if name.endswith("_PORT")
            else "Annotations and labels"
            if isinstance(value, str) and "/" in value and not value.startswith("/") and "nvidia" not in value
            else "Others"
        )
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        groups[group].append(f"| `{shown}` | `{name}` | {_sentence(member.docstring)} |")
    lines = [
        "# Names on the cluster\n",
        "What this project owns of names: [`schemas/names.py`](../contributing.md) is their one place.\n",
    ]
    for title, rows in groups.items():
        lines += [f"## {title}\n", "| name | in the code | |", "|---|---|---|", *sorted(set(rows)), ""]
    lines += ["## Records\n", "What the annotations hold is JSON of these forms.\n"]
    for path in sorted((_SOURCES / "kfp_volcano" / "schemas" / "json").glob("record-*.json")):
        schema = load_schema(path.name.removesuffix(".schema.json"))
        lines += [f"### {schema['title']}\n", f"{schema.get('description', '')}\n", "| field | | |", "|---|---|---|"]
        lines += [*_fields(schema, schema, ()), ""]
    return _joined(lines)


def metrics() -> str:
    """The autoscaler's own metrics."""
    registry = CollectorRegistry()
    Telemetry(registry, clock=float)
    lines = [
        "# Metrics\n",
        "Of the autoscaler, for Prometheus, at `/metrics`; see [The autoscaler](../autoscaler.md).\n",
    ]
    for found in sorted(registry.collect(), key=lambda metric: metric.name):
        name = f"{found.name}_total" if found.type == "counter" else found.name
        lines.append(f"## `{name}`\n\n{found.documentation} A {found.type}.\n")
    return _joined(lines)


def errors_and_codes() -> str:
    """What is raised, and what commands end with."""
    classes = [each for name in errors.__all__ if isinstance(each := getattr(errors, name), type)]
    raised = [each for each in classes if issubclass(each, errors.KfpVolcanoError)]
    lines = ["# Errors and exit codes\n", "## Exit codes\n", "| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in _CODES.items()]
    lines += [
        "",
        "## Errors\n",
        "All of `kfp_volcano.errors`; `retryable` tells whether the same call may succeed later.\n",
    ]
    for each in raised:
        base = each.__bases__[0].__name__
        lines.append(f"### `{each.__name__}`\n\n{inspect.getdoc(each)}\n")
        lines.append(f"A `{base}`; exit code {each.exit_code}{', retryable' if each.retryable else ''}.\n")
    lines.append(f"### `Problem`\n\n{inspect.getdoc(errors.Problem)}\n")
    return _joined(lines)


def python() -> str:
    """The public names: those of `kfp_volcano` and of the runtime."""
    package = griffe.load("kfp_volcano", search_paths=[str(_SOURCES)], resolve_aliases=False)
    lines = ["# Python\n", "Public names. Everything else may change between minor versions.\n"]
    for path in ("kfp_volcano", "kfp_volcano.elastic.runtime"):
        module = package if path == "kfp_volcano" else package[path.partition(".")[2]]
        lines += [f"## {path}\n", _text(module.docstring)]
        for name in module.exports or ():
            if name != "__version__":
                lines += _public(package, module, str(name), 3)
    return _joined(lines)


def _command(path: str, command: click.Command) -> Iterator[str]:
    shape: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100, **command.context_settings}
    with click.Context(command, info_name=path, **shape) as context:
        yield f"## `{path}`\n"
        yield f"```text\n{command.get_help(context).rstrip()}\n```\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield from _command(f"{path} {name}", command.commands[name])


def _fields(rule: Schema, root: Schema, path: tuple[str, ...]) -> Iterator[str]:
    """A row for each field below a rule."""
    for key in rule.get("properties", {}):
        inner = child_rule(rule, key, root)
        here = (*path, key)
        needed = " required" if key in rule.get("required", ()) else ""
        kind = inner.get("type", "")
        shape = " or ".join(kind) if isinstance(kind, list) else kind
        facts = [shape + needed]
        if "enum" in inner:
            facts.append(", ".join(f"`{each}`" for each in inner["enum"]))
        if inner.get("default") not in (None, {}, []):
            facts.append(f"default `{inner['default']}`")
        text = " ".join(str(inner.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{'.'.join(here)}` | {'; '.join(filter(None, facts))} | {text} |"
        if key not in _KUBERNETES:
            yield from _fields(inner, root, here)
            yield from _below(inner, root, here)


def _below(rule: Schema, root: Schema, path: tuple[str, ...]) -> Iterator[str]:
    """The fields of a mapping's values and of a list's entries; of what holds itself, once."""
    if any(part.removesuffix("[]") == path[-1] for part in path[:-1]):
        return
    if isinstance(rule.get("items"), dict):
        yield from _fields(resolve(rule["items"], root), root, (*path[:-1], f"{path[-1]}[]"))
    if isinstance(rule.get("additionalProperties"), dict):
        yield from _fields(resolve(rule["additionalProperties"], root), root, (*path, "*"))


def _public(package: griffe.Module, module: griffe.Module, name: str, level: int) -> list[str]:
    found = module[name]
    target = package[found.target_path.removeprefix("kfp_volcano.")] if found.is_alias else found
    while target.is_alias:
        target = package[target.target_path.removeprefix("kfp_volcano.")]
    shown = str(target.signature()) if target.is_function or target.is_class else name
    lines = [
        f"{'#' * level} `{name}`\n",
        f"```text\n{shown.split(' -> None')[0] if target.is_class else shown}\n```\n",
        _text(target.docstring),
    ]
    if target.is_class:
        for key, member in target.members.items():
            if not key.startswith("_") and (member.is_function or member.is_attribute) and member.docstring:
                heading = f"{name}.{key}"
                shape = f"```text\n{member.signature()}\n```\n" if member.is_function else ""
                lines += [f"{'#' * (level + 1)} `{heading}`\n", shape, _text(member.docstring)]
    return lines


def _text(docstring: griffe.Docstring | None) -> str:
    """A docstring as it is: its code and its lists of arguments keep their lines."""
    if docstring is None:
        return ""
    return f"```text\n{docstring.value.rstrip()}\n```\n" if "\n" in docstring.value else f"{docstring.value}\n"


def _sentence(docstring: griffe.Docstring | None) -> str:
    return " ".join(docstring.value.split()).replace("|", "\\|") if docstring else ""


def _joined(lines: list[str]) -> str:
    return "\n".join(line for line in lines).rstrip() + "\n"


PAGES = {
    "commands.md": commands,
    "fields.md": fields,
    "names.md": names,
    "metrics.md": metrics,
    "errors.md": errors_and_codes,
    "python.md": python,
}
"""What writes each page, by the page's name in docs/reference/."""

if __name__ == "__main__":
    _HERE.mkdir(exist_ok=True)
    for page, write in PAGES.items():
        (_HERE / page).write_text(WRITTEN + write(), encoding="utf-8")
