# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from kfp_volcano.cli.completion import complete_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = [
    "cluster_options",
    "confirm",
    "dry_option",
    "job_argument",
    "pools_option",
    "profiles_option",
    "reach",
    "reference",
    "whoever",
    "why_option",
    "yes_option",
]

Command = TypeVar("Command", bound="Callable[..., Any]")


profiles_option = click.option(
    "--profiles",
    type=click.Path(path_type=Path),
    help="The platform's resource profiles (kind ResourceProfiles); also from KFP_VOLCANO_PROFILES.",
)
pools_option = click.option(
    "--pools",
    "pools_file",
    type=click.Path(path_type=Path),
    help="The platform's pools of shared GPUs (kind GPUPools); also from KFP_VOLCANO_POOLS.",
)


job_argument = click.argument("job", metavar="[NAMESPACE/]JOB", shell_complete=complete_job)
dry_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
why_option = click.option("--why", default="", metavar="TEXT", help="For the record, and for whoever asks later.")


def cluster_options(command: Command) -> Command:
    """`--kubeconfig FILE` and `--context NAME`, for `reach`."""
    file = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The cluster of this kubeconfig; by default the one of KFP_VOLCANO_CLUSTER, KUBECONFIG or ~/.kube/config.",
    )
    context = click.option("--context", metavar="NAME", help="The kubeconfig's context; by default its current one.")
    return file(context(command))


def reach(kubeconfig: Path | None, context: str | None, *, dry_run: bool = False) -> Cluster:
    """The cluster that the options name, else the one that the environment names; only to read, in a dry run."""
    from kfp_volcano.volcano.cluster import connect  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.dry_run import DryRun  # noqa: PLC0415

    named = kubeconfig is not None or context is not None
    cluster: Cluster = connect.kubernetes(kubeconfig, context) if named else connect.connect()
    return cast("Cluster", DryRun(cluster, _tell)) if dry_run else cluster


def _tell(what: str, written: Any) -> None:
    """What a dry run would write: a YAML document for each."""
    import yaml  # noqa: PLC0415

    click.echo(f"---\n# {what}")
    if written is not None:
        click.echo(yaml.safe_dump(written, sort_keys=False, allow_unicode=True), nl=False)


def reference(job: str) -> JobRef:
    """The Job that is meant, in `default` where no namespace is said."""
    from kfp_volcano.volcano.launcher.reference import JobRef  # noqa: PLC0415

    return JobRef.parse(job if "/" in job else f"default/{job}")


def confirm(what: str) -> None:
    """Ask before what cannot be undone. Raises UsageError where nobody can be asked, Abort where the answer is no."""
    if not _terminal():
        raise click.UsageError(f"this would {what}: say --yes, or look at it with --dry-run")
    click.confirm(f"This is going to {what}. Go on?", abort=True, err=True)


def _terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def whoever() -> str:
    """Who gives the command, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        return "somebody"
