# SPDX-License-Identifier: Apache-2.0
"""Options of commands that talk to a KFP backend, and pipeline parameters."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ACCESS", "backend_options", "pairs"]

_FILE = click.Path(path_type=Path, dir_okay=False)
ACCESS = (
    click.option("--host", metavar="URL", default="", help="The KFP backend; else KF_PIPELINES_ENDPOINT."),
    click.option(
        "-n", "--namespace", default="", metavar="NS", help="Yours at the backend, where it serves several users."
    ),
    click.option("--token-file", type=_FILE, help="A file with a bearer token, read anew for each request."),
    click.option("--iap-client-id", default="", metavar="ID", help="Of the Identity-Aware Proxy before the backend."),
    click.option("--ca-cert", type=_FILE, help="PEM file of the authorities to trust."),
    click.option("--insecure", is_flag=True, help="Do not check the backend's certificate."),
    click.option("--proxy", default="", metavar="URL", help="An HTTP proxy; else HTTPS_PROXY, HTTP_PROXY, NO_PROXY."),
    click.option("--ui-host", default="", metavar="URL", help="For links; else KF_PIPELINES_UI_ENDPOINT, or the host."),
    click.option("--kube-context", default="", metavar="NAME", help="The kubeconfig's, where no host is named."),
)
"""Tokens and cookies themselves come from the environment alone: others see command lines."""


def backend_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the backend is and what lets one in, given to the command as one `access`, an `Access`."""

    @functools.wraps(command)
    def with_access(**options: Any) -> Any:
        from kfp_volcano.pipelines.backend.access import Access  # noqa: PLC0415

        insecure = options.pop("insecure")
        names = ("host", "namespace", "token_file", "iap_client_id", "ca_cert", "proxy", "ui_host", "kube_context")
        access = Access(verify_tls=not insecure, **{name: options.pop(name) for name in names})
        return command(access=access, **options)

    decorated: Callable[..., Any] = with_access
    for option in reversed(ACCESS):
        decorated = option(decorated)
    return decorated


def pairs(_context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE`, several times, as a mapping: a click callback."""
    found = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{item!r} is not KEY=VALUE", param=parameter)
        found[key] = value
    return found
