# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano autoscaler run`: leads queues until it is told to stop."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

import click

from kfp_volcano.cli.backend import pairs
from kfp_volcano.cli.options import cluster_options

__all__ = ["run"]

ALL = "all"
_FILE = click.Path(path_type=Path, dir_okay=False)


def _labels(_context: click.Context, _parameter: click.Parameter, text: str | None) -> dict[str, str]:
    """Labels as `kubectl` selects by them, of equality alone."""
    found = {}
    for part in (text or "").split(",") if text is not None else ():
        key, equals, value = (each.strip() for each in part.replace("==", "=").partition("="))
        if not (key and equals) or key.endswith("!"):
            raise click.BadParameter(f"{part!r}: say KEY=VALUE, or several with commas between them")
        found[key] = value
    return found


@click.command()
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="A queue to lead; repeat.")
@click.option("--selector", callback=_labels, metavar="KEY=VALUE,…", help="Lead the queues that have these labels.")
@click.option("--all-queues", is_flag=True, help="Lead every queue.")
@click.option("--namespace", default=ALL, show_default=True, metavar="NAME", help="Whose Jobs are resized.")
@click.option(
    "--policies",
    type=click.Path(path_type=Path),
    help="A file, or a folder of files, of kind Policy; followed.",
)
@click.option("--prometheus", metavar="URL", help="Where measurements of pods, and external metrics, are asked for.")
@click.option("--prometheus-token-file", "token_file", type=_FILE, help="The bearer token for it.")
@click.option("--prometheus-ca-file", "ca_file", type=_FILE, help="The authority that its certificate is of.")
@click.option(
    "--query", "queries", multiple=True, callback=pairs, metavar="NAME=PROMQL", help="An external metric; repeat."
)
@click.option(
    "--dcgm-exporter", "exporters", multiple=True, metavar="URL", help="DCGM exporters, without a Prometheus; repeat."
)
@click.option("--decisions", type=click.Path(path_type=Path, file_okay=False), help="Folder for the decision log.")
@click.option(
    "--actors", type=click.IntRange(1, 64), default=4, show_default=True, help="The most processes to lead in."
)
@click.option(
    "--metrics-port",
    "port",
    type=click.IntRange(0, 65535),
    help="By default 8080, or any where that is taken.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="text", show_default=True)
@click.option("--identity", metavar="NAME", help="Who this is among replicas; by default host and process.")
@cluster_options
def run(
    *,
    queues: tuple[str, ...],
    selector: dict[str, str],
    all_queues: bool,
    namespace: str,
    policies: Path | None,
    prometheus: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    queries: dict[str, str],
    exporters: tuple[str, ...],
    decisions: Path | None,
    actors: int,
    port: int | None,
    log_format: Literal["json", "text"],
    identity: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Size the elastic trainings of queues, until SIGTERM.

    Any number of replicas may run: one leads a queue, the others stand by and take over within seconds. Killed at any
    moment, nothing is lost. At --metrics-port: /metrics, /healthz and /readyz.

    \b
    Example: kfp-volcano autoscaler run --kubeconfig ~/.kube/config --queue research
             kfp-volcano autoscaler run --selector team=vision --policies policies/
    """
    from kfp_volcano.elastic.autoscaler.service import run_service  # noqa: PLC0415
    from kfp_volcano.elastic.autoscaler.station import Access, Measuring, Orders  # noqa: PLC0415
    from kfp_volcano.schemas.names import ENV_CLUSTER, SYSTEM_NAMESPACE  # noqa: PLC0415

    if not (queues or selector or all_queues):
        raise click.UsageError("say which queues: --queue NAME, --selector KEY=VALUE, or --all-queues")
    if all_queues and (queues or selector):
        raise click.UsageError("--all-queues leaves nothing for --queue and --selector to add")
    if (token_file or ca_file) and not prometheus:
        raise click.UsageError("--prometheus-token-file and --prometheus-ca-file are of --prometheus URL")
    everywhere = namespace == ALL
    orders = Orders(
        access=Access(target=os.environ.get(ENV_CLUSTER, ""), kubeconfig=kubeconfig, context=context),
        identity=identity or f"{socket.gethostname()}:{os.getpid()}",
        namespace="" if everywhere else namespace,
        home=SYSTEM_NAMESPACE if everywhere else namespace,
        policies=policies,
        measuring=Measuring(
            prometheus=prometheus, token_file=token_file, ca_file=ca_file, exporters=exporters, queries=queries
        ),
        decisions=decisions,
        shared_namespace=None if everywhere else SYSTEM_NAMESPACE,
    )
    followed = {} if all_queues else selector or None
    run_service(orders, queues=queues, selector=followed, actors=actors, port=port, log_format=log_format)
