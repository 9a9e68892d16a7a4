# SPDX-License-Identifier: Apache-2.0
"""`python -m kfp_volcano.components.wrapped submit|collect`: the steps around a component that runs as workers.

They have the inputs and outputs of whichever component it is, so they read KFP's message themselves.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["PREFIX", "main", "quoted"]

PREFIX = "kfp_volcano_"
"""Inputs of the submit step beside the component's own begin so."""


def quoted(value: Any) -> str:
    """JSON in which KFP finds nothing to fill in, and its local runner no `python3` to replace by another."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return text.replace("{{$", r"\u007b\u007b$").replace("python3", r"python\u0033")


def main() -> None:
    """Run the step with what KFP gives it."""
    parser = argparse.ArgumentParser(prog="python -m kfp_volcano.components.wrapped")
    parser.add_argument("step", choices=("submit", "collect"))
    parser.add_argument("--executor_input", type=json.loads, required=True)
    parser.add_argument("--component", type=json.loads)
    parser.add_argument("--protocol", required=True)
    arguments = parser.parse_args()
    os.environ["_KFP_RUNTIME"] = "true"  # KFP's own word for: leave the compiler out, it takes long to import
    given, outputs = arguments.executor_input.get("inputs", {}), arguments.executor_input["outputs"]
    if arguments.step == "submit":
        told = {"parameterValues": {"Output": _submit(arguments.component, given)}}
    else:
        told = _collect(given, outputs)
    file = Path(outputs["outputFile"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told), encoding="utf-8")


def _submit(component: Any, given: Any) -> str:
    from kfp_volcano.volcano.launcher.wrapped import input_artifacts
    from kfp_volcano.volcano.launcher.wrapped_steps import submit_component

    values = given.get("parameterValues", {})
    ours = {key.removeprefix(PREFIX): value for key, value in values.items() if key.startswith(PREFIX)}
    inputs = {
        "parameterValues": {key: value for key, value in values.items() if not key.startswith(PREFIX)},
        "artifacts": given.get("artifacts", {}),
    }
    paths = {(name, index): _path(artifact) for name, index, artifact in input_artifacts(inputs)}
    part = (ours["instance"], ours["task"])
    return submit_component(component, inputs, paths, run_id=ours["run_id"], part=part, folder=ours["folder"])


def _collect(given: Any, outputs: Any) -> Any:
    from kfp_volcano.volcano.launcher.wrapped_steps import collect_component

    job = given["parameterValues"][f"{PREFIX}job"]
    return collect_component(job, outputs, lambda uri: _path({"uri": uri}))


def _path(artifact: Any) -> Path:
    """Where KFP has an artifact's files in a step."""
    from kfp import dsl

    return Path(dsl.Artifact(uri=artifact.get("uri", ""), metadata=artifact.get("metadata", {})).path)


if __name__ == "__main__":
    main()
