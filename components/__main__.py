# SPDX-License-Identifier: Apache-2.0
"""`python -m kfp_volcano.components MODULE:FUNCTION --executor_input JSON`: run a step, as KFP's own executor would."""

import argparse
import importlib
import json
import os

__all__ = ["main"]


def main() -> None:
    """Call the function with its inputs and write its outputs where KFP looks for them."""
    parser = argparse.ArgumentParser(prog="python -m kfp_volcano.components")
    parser.add_argument("step", metavar="MODULE:FUNCTION")
    parser.add_argument("--executor_input", type=json.loads, required=True)
    parser.add_argument("--protocol", required=True)
    arguments = parser.parse_args()
    os.environ["_KFP_RUNTIME"] = "true"  # KFP's own word for: leave the compiler out, it takes long to import
    from kfp.dsl.executor import Executor

    module, _, name = arguments.step.partition(":")
    function = getattr(importlib.import_module(module), name)
    Executor(executor_input=arguments.executor_input, function_to_execute=function).execute()


if __name__ == "__main__":
    main()
