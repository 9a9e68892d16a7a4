# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano doctor`: what is there, what is missing, and how to get it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.backend import backend_options
from kfp_volcano.cli.options import cluster_options
from kfp_volcano.cli.output import output_option, print_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kfp_volcano.pipelines.backend.access import Access
    from kfp_volcano.volcano.launcher.doctor import Finding

__all__ = ["doctor"]


@click.command()
@cluster_options
@click.option("--service-account", metavar="NAME", help="Whose permissions to look at; by default your own.")
@click.option("--kfp-namespace", default="kubeflow", show_default=True, help="Where KFP is installed.")
@output_option("text")
@backend_options
def doctor(
    *,
    kubeconfig: Path | None,
    context: str | None,
    service_account: str | None,
    kfp_namespace: str,
    output: str,
    access: Access,
) -> None:
    """Say what is installed, what is missing and how to get it.

    Here; with --kubeconfig on that cluster; with --host at that KFP backend, and with both also how KFP is configured.
    --namespace is where trainings are to run, `default` if it is not said.

    \b
    Example: kfp-volcano doctor --kubeconfig ~/.kube/config --namespace vision
             kfp-volcano doctor --kubeconfig ~/.kube/config --host http://localhost:8888
    """
    complete, works = True, True
    told: list[Finding] = []
    for finding in _findings(kubeconfig, context, service_account, kfp_namespace, access):
        complete, works = complete and finding.ok, works and (finding.ok or not finding.required)
        told.append(finding)
        if output != "text":
            continue
        mark = "ok     " if finding.ok else "missing" if finding.required else "-      "
        remedy = "" if finding.ok else f"  ->  {finding.remedy}"
        click.echo(f"{mark}  {finding.what:<14} {finding.found}{remedy}")
    if output != "text":
        print_data([asdict(finding) for finding in told], output)
    if not works:
        sys.exit(2)
    if output != "text":
        return
    if kubeconfig or context or access.host:
        click.echo("all is there" if complete else "all that a run needs is there")


def _findings(
    kubeconfig: Path | None, context: str | None, service_account: str | None, kfp_namespace: str, access: Access
) -> Iterator[Finding]:
    cluster = None
    if kubeconfig is not None or context is not None:
        from kfp_volcano.volcano.cluster.connect import kubernetes  # noqa: PLC0415
        from kfp_volcano.volcano.launcher.cluster_doctor import examine_cluster  # noqa: PLC0415

        cluster = kubernetes(kubeconfig, context)
        yield from examine_cluster(cluster, access.namespace or "default", service_account)
    if access.host:
        from kfp_volcano.pipelines.backend.doctor import examine_backend  # noqa: PLC0415
        from kfp_volcano.pipelines.client import Client  # noqa: PLC0415

        yield from examine_backend(Client.of(access).connection)
    if access.host and cluster is not None:
        from kfp_volcano.volcano.launcher.kfp_doctor import examine_kfp  # noqa: PLC0415

        yield from examine_kfp(cluster, kfp_namespace)
    if cluster is None and not access.host:
        from kfp_volcano.volcano.launcher.doctor import examine  # noqa: PLC0415

        yield from examine()
