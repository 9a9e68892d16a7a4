# SPDX-License-Identifier: Apache-2.0
"""Where a KFP backend is, and what lets one in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.volcano.cluster.kubernetes.own_pod import SERVICE_ACCOUNT

__all__ = ["Access"]

ENV_HOST = "KF_PIPELINES_ENDPOINT"  # kfp's own names, where it has one
ENV_UI = "KF_PIPELINES_UI_ENDPOINT"
ENV_TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - a name
ENV_TOKEN = "KFP_VOLCANO_KFP_TOKEN"  # noqa: S105 - a name
ENV_COOKIES = "KFP_VOLCANO_KFP_COOKIES"
POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
"""Where Kubeflow's PodDefault mounts the token that its backend takes from pods."""
POD_NAMESPACE = SERVICE_ACCOUNT / "namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the backend is and what lets one in; what is left out comes from the environment, as kfp reads it."""

    host: str = ""
    """URL of the API or of the UI that serves it too; else `KF_PIPELINES_ENDPOINT`, else the cluster that this pod is
    in or that the kubeconfig names, through its API server."""
    namespace: str = ""
    """Of experiments, pipelines, runs and schedules, where the backend serves several users."""
    token: str = ""
    """A bearer token; else `KFP_VOLCANO_KFP_TOKEN`."""
    token_file: Path | None = None
    """A file with a token, read anew for each request; else `KF_PIPELINES_SA_TOKEN_PATH`, else what Kubeflow mounts
    in pods."""
    cookies: str = ""
    """A `Cookie` header, as the login of the dashboard leaves it; else `KFP_VOLCANO_KFP_COOKIES`."""
    iap_client_id: str = ""
    """OAuth client of an Identity-Aware Proxy; else `KF_PIPELINES_IAP_OAUTH2_CLIENT_ID`. The desktop client's id and
    secret come from `KF_PIPELINES_APP_OAUTH2_CLIENT_ID` and `…_SECRET`."""
    ca_cert: Path | None = None
    """PEM file of the authorities that the backend's certificate is checked with."""
    verify_tls: bool = True
    proxy: str = ""
    """URL of an HTTP proxy; else what `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say."""
    ui_host: str = ""
    """Where links point to, if not to the host; else `KF_PIPELINES_UI_ENDPOINT`."""
    kube_context: str = ""
    """The kubeconfig's context, where no host is named."""
    kfp_namespace: str = "kubeflow"
    """Where KFP itself is installed, where no host is named."""

    def complete(self) -> _Complete:
        """With what the environment adds. Raises SpecError for what is wrong with it."""
        token = self.token or ("" if self.token_file else os.environ.get(ENV_TOKEN, ""))
        host = (self.host or os.environ.get(ENV_HOST, "")).strip()
        host = (host if not host or "://" in host else f"https://{host}").rstrip("/")
        usable = _is_url(host)
        complete = _Complete(
            host=host,
            token=token.strip(),
            token_file=self._token_file() if not token else None,
            cookies=self.cookies or os.environ.get(ENV_COOKIES, ""),
            proxy=self.proxy or (_proxy(host) if usable else ""),
            ui=(self.ui_host or os.environ.get(ENV_UI, "") or host).rstrip("/"),
        )
        problems = [
            Problem(option, f"there is no file {path}")
            for option, path in (("token file", complete.token_file), ("CA certificate", self.ca_cert))
            if path is not None and not path.is_file()
        ]
        if host and not usable:
            problems.append(Problem("host", f"{host!r} is no URL", "http://… or https://…"))
        if problems:
            raise SpecError(problems, source="the KFP backend")
        return complete

    def _token_file(self) -> Path | None:
        named = self.token_file or (Path(os.environ[ENV_TOKEN_FILE]) if os.environ.get(ENV_TOKEN_FILE) else None)
        return named or (POD_TOKEN if POD_TOKEN.is_file() and not self.iap_client_id else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complete:
    host: str
    token: str
    token_file: Path | None
    cookies: str
    proxy: str
    ui: str


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:  # an address or a port that is none
        return False


def _proxy(host: str) -> str:
    """The environment's proxy for a URL, which `kfp_server_api` does not look for."""
    url = urlsplit(host)
    found = getproxies().get(url.scheme or "https", "")
    return "" if not url.hostname or proxy_bypass(url.hostname) else found
