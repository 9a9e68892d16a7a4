# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano priority`: another priority for a Job that lives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.options import cluster_options, dry_option, job_argument, reach, whoever, why_option
from kfp_volcano.cli.verbosity import say

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["priority"]


@click.command()
@job_argument
@click.argument("name", metavar="CLASS")
@why_option
@dry_option
@cluster_options
def priority(job: str, name: str, *, why: str, dry_run: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Change the priority of a Job that lives, and say what that reaches.

    JOB is the Volcano Job's name, in `default` if no namespace is given. Where the autoscaler moves Jobs among classes,
    it starts from this one from then on.

    \b
    Example: kfp-volcano priority vision/resnet-1a2b3c4d interactive
    """
    from kfp_volcano.volcano.launcher.priority import change_priority, followed  # noqa: PLC0415

    namespace, _, short = job.rpartition("/")
    namespace = namespace or "default"
    cluster = reach(kubeconfig, context, dry_run=dry_run)
    change = change_priority(cluster, short, namespace, name, by=whoever(), now=time.time(), why=why)
    if not change.patch:
        say(f"{namespace}/{short}: has priority {name} already")
        return
    click.echo(f"{namespace}/{short}: {change.before or 'no priority'} -> {name}")
    for sentence in change.reached:
        click.echo(f"  changed  {sentence}")
    for sentence in change.kept:
        click.echo(f"  stays    {sentence}")
    if dry_run:
        return
    match followed(cluster, short, namespace, name):
        case None:
            say("the Job has no PodGroup now; its next one will have the new priority")
        case False:
            say("its PodGroup has not followed yet: does Volcano's controller run?")
