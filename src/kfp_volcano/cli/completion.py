# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano completion`, and what completes the names that commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from kfp_volcano.errors import KfpVolcanoError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["complete_field", "complete_job", "completion"]

_SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    Commands, options and files; the names of Jobs on the cluster, and the fields that `explain` knows.

    \b
    Example: source <(kfp-volcano completion bash)                 # in ~/.bashrc; zsh alike
             kfp-volcano completion fish > ~/.config/fish/completions/kfp-volcano.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click knows all three
    script = made(context.find_root().command, {}, "kfp-volcano", "_KFP_VOLCANO_COMPLETE").source()
    click.echo(script, nl=False)


def complete_job(context: click.Context, _argument: click.Parameter, begun: str) -> Sequence[CompletionItem]:
    """The Jobs of the cluster that is named so far, or by the environment; none where it does not answer."""
    from kfp_volcano.cli.options import reach  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.jobs import job_lines  # noqa: PLC0415

    try:
        cluster = reach(context.params.get("kubeconfig"), context.params.get("context"))
        names = [line.job for line in job_lines(cluster, "", 0.0)]
    except KfpVolcanoError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def complete_field(_context: click.Context, _argument: click.Parameter, begun: str) -> Sequence[CompletionItem]:
    """The fields below the one that is written, of TrainingJobs and the other kinds."""
    from kfp_volcano.schemas.explain import fields_below  # noqa: PLC0415

    above, dot, _ = begun.rpartition(".")
    try:
        below = fields_below(above)
    except KfpVolcanoError:
        return []
    return [CompletionItem(found) for name in below if (found := f"{above}{dot}{name}").startswith(begun)]
