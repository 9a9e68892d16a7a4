# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["cluster_options", "pools_option", "profiles_option", "reach", "whoever", "why_option"]

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


def reach(kubeconfig: Path | None, context: str | None) -> Cluster:
    """The cluster that the options name, else the one that the environment names."""
    from kfp_volcano.volcano.cluster import connect  # noqa: PLC0415

    if kubeconfig is None and context is None:
        return connect.connect()
    return connect.kubernetes(kubeconfig, context)


def whoever() -> str:
    """Who gives the command, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        return "somebody"
