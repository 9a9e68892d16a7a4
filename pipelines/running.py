# SPDX-License-Identifier: Apache-2.0
"""Run pipelines: compile them, run them on this machine. The only way from the command line to kfp."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.template import cast

__all__ = ["arguments", "compile_pipeline", "compile_to", "load_pipeline", "run_here"]

LOOP_WIDTH = 8
"""Iterations of a loop that run at once on this machine; each is a process that mostly waits."""


def load_pipeline(path: Path, name: str | None = None) -> Any:
    """The pipeline in a Python file: the one named, or the only one.

    Raises:
        SpecError: There is no such file, it does not load, or it holds no pipeline or several.
    """
    from kfp.dsl.graph_component import GraphComponent  # kfp takes a second to import

    from kfp_volcano.pipelines.wrapping import WrappedComponent

    if not path.is_file():
        raise SpecError("is a folder" if path.is_dir() else "there is no such file", source=str(path))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None:
        raise SpecError("is not a Python file", source=str(path))
    module = importlib.util.module_from_spec(module_spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            module_spec.loader.exec_module(module)
    except SpecError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends itself is no module to take pipelines from
        raise SpecError(f"does not load: {type(error).__name__}: {error}", source=str(path)) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    found = {
        value.name: value
        for value in vars(module).values()
        if isinstance(value, GraphComponent) and not isinstance(value, WrappedComponent)
    }
    if name is not None:
        by_name = {key.replace("_", "-"): value for key, value in found.items()}
        if name.replace("_", "-") not in by_name:
            raise SpecError(f"has no pipeline {name!r}; it has {', '.join(found) or 'none'}", source=str(path))
        return by_name[name.replace("_", "-")]
    if len(found) != 1:
        listed = f"several pipelines ({', '.join(found)}): name one with --pipeline" if found else "no @dsl.pipeline"
        raise SpecError(f"holds {listed}", source=str(path))
    return next(iter(found.values()))


def arguments(pipeline: Any, given: dict[str, str]) -> dict[str, Any]:
    """Texts from the command line as the pipeline's parameters.

    Raises:
        SpecError: Lists every parameter that is unknown, missing or not of its type.
    """
    inputs = pipeline.component_spec.inputs or {}
    problems = [
        Problem(f"--param {key}", "the pipeline has no such parameter", f"it has {', '.join(inputs) or 'none'}")
        for key in given
        if key not in inputs
    ]
    values: dict[str, Any] = {}
    for key, spec in inputs.items():
        if key in given:
            try:
                values[key] = cast(given[key], _kind(spec.type))
            except ValueError:
                problems.append(Problem(f"--param {key}", f"{given[key]!r} is not of type {spec.type}"))
        elif not spec.optional:
            problems.append(Problem(f"--param {key}", "is missing and has no default"))
    if problems:
        raise SpecError(problems, source="the pipeline's parameters")
    return values


def _kind(name: str) -> str:
    from kfp.dsl.types import type_utils

    return str(type_utils.get_parameter_type_name(name))


def compile_pipeline(path: Path, output: Path, *, name: str | None = None) -> None:
    """Compile a pipeline file to KFP's IR, for a backend."""
    compile_to(load_pipeline(path, name), output)


def compile_to(pipeline: Any, output: Path) -> None:
    """Compile a pipeline function to KFP's IR, for a backend. Raises SpecError for what is none."""
    from kfp import compiler
    from kfp.dsl.base_component import BaseComponent

    if not isinstance(pipeline, BaseComponent):
        raise SpecError(f"{pipeline!r} is no pipeline: a function with @dsl.pipeline", source="the pipeline")
    output.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        compiler.Compiler().compile(pipeline, str(output))


def run_here(path: Path, *, name: str | None, values: dict[str, Any], root: Path) -> None:
    """Run a pipeline in this process with kfp's local runner, each step a process in this interpreter's environment."""
    from kfp import local

    warnings.filterwarnings("ignore")
    pipeline = load_pipeline(path, name)
    _widen_loops()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root))
    pipeline(**values)


def _widen_loops() -> None:
    """Let kfp run `LOOP_WIDTH` iterations of a loop at a time: how many trainings run is the queue's business.

    Its own limit is two, for fear of loops in loops (kfp/local/orchestrator/enhanced_dag_orchestrator.py).
    """
    from kfp.local.orchestrator import enhanced_dag_orchestrator as orchestrator

    class Wide(orchestrator.ParallelExecutor):
        def __init__(self, max_workers: int | None = None) -> None:
            super().__init__(max_workers)
            self.conservative_max = LOOP_WIDTH
            self.max_workers = min(max_workers or LOOP_WIDTH, LOOP_WIDTH)

    orchestrator.ParallelExecutor = Wide


def _main() -> None:
    """`python -m kfp_volcano.pipelines.running`: run the pipeline that standard input describes, then wait for its end.

    The end of standard input is the end of whoever started this: then the whole process group goes.
    """
    order = json.loads(sys.stdin.readline())

    def die_with_parent() -> None:
        sys.stdin.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=die_with_parent, daemon=True).start()
    try:
        run_here(Path(order["path"]), name=order["name"], values=order["values"], root=Path(order["root"]))
    except RuntimeError as error:
        print(error, file=sys.stderr)  # noqa: T201 - kfp's word that a step failed; the step has said why
        sys.exit(1)


if __name__ == "__main__":
    _main()
