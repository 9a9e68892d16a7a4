# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano config`: the settings in force, and where each comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.settings import CONFIG, OptionAt, options_below
from kfp_volcano.cli.tables import print_table
from kfp_volcano.cli.verbosity import say

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["config"]


@click.command()
@click.option("--all", "whole", is_flag=True, help="Every option of every command, with its default.")
@output_option("table")
@click.pass_context
def config(context: click.Context, *, whole: bool, output: str) -> None:
    """Show the settings in force, and where each comes from.

    What is said on the command line counts, then the environment, then the file, then the default. In the file
    (--config, KFP_VOLCANO_CONFIG, or kfp-volcano/config.yaml in ~/.config) an option that stands at the top is that of
    every command that has it; below a command's name, of that command alone.

    \b
    Example: kfp-volcano config
             kfp-volcano --config team.yaml config --all -o json
    """
    program = context.find_root()
    file, _ = context.meta.get(CONFIG, (None, {}))
    found = [_effective(each, program.default_map or {}, str(file)) for each in options_below(program.command)]
    shown = [each for each in found if whole or each["from"] != "default"]
    if output != "table":
        print_data(shown, output)
    elif shown:
        print_table(
            ("SETTING", "VALUE", "FROM"), [(each["setting"], str(each["value"]), each["from"]) for each in shown]
        )
    else:
        say("nothing is set; kfp-volcano config --all lists what may be")


def _effective(each: OptionAt, said: Mapping[str, Any], file: str) -> dict[str, Any]:
    value, source = each.option.to_info_dict()["default"], "default"
    for part in each.command:
        said = said.get(part, {})
    if each.option.name in said:
        value, source = said[each.option.name], file
    for variable in reversed(each.variables):
        if os.environ.get(variable):
            value, source = os.environ[variable], variable
    return {"setting": " ".join((*each.command, each.name)), "value": value, "from": source}
