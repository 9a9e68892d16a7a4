# SPDX-License-Identifier: Apache-2.0
"""One try of one HTTP request to the API server; the only file that imports the client library.

Of the library this uses what it is best at: kubeconfig files with their users, exec plugins and tokens, service
accounts, certificate authorities, and connections made from them. Requests go straight to its connection pool, for its
own request methods drop time limits that are not whole numbers and, before version 31, send a JSON Patch of a custom
resource under another content type.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies_environment

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.config.kube_config import KubeConfigMerger

from kfp_volcano.errors import ForbiddenError, SpecError
from kfp_volcano.version import __version__
from kfp_volcano.volcano.cluster.kubernetes.own_pod import SERVICE_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kfp_volcano.volcano.cluster.kubernetes.request import Request

__all__ = ["Answer", "Connection", "Silence", "from_kubeconfig", "in_cluster"]

_CONNECT_S = 10.0
_READ_AT_ONCE = 64 * 1024
_CONNECTIONS = 64
"""Kept open at most: one for each kind that is watched and each log that is followed."""
_UNAUTHORIZED = 401
_TOKEN = "authorization"  # noqa: S105  # what the library calls it


class Silence(Exception):  # noqa: N818  # no error yet: the next try may be answered
    """No answer, or only a part of one. `sent`: whether the request may have been carried out all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The object in the body; empty where it is none, as from a proxy in between."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Connection:
    """A way to one API server. Threads may share it.

    Credentials are those of `load`, which is called again when the server does not accept them any more: tokens in
    files are renewed, and so are those that a program hands out.
    """

    def __init__(self, load: Callable[[], client.Configuration]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._take(load())

    def send(self, request: Request, *, read_s: float) -> Answer:
        """Ask once. `read_s` limits each wait for bytes, in seconds.

        Raises Silence, and ForbiddenError where the server's certificate is not trusted.
        """
        with self.open(request, read_s=read_s) as (answer, chunks):
            return Answer(answer.status, answer.headers, b"".join(chunks))

    @contextmanager
    def open(self, request: Request, *, read_s: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """Ask once, and read the body of the answer piece by piece as it comes. Raises as `send`, also on the way."""
        response = self._begin(request, read_s)
        if response.status == _UNAUTHORIZED:
            response.close()
            with self._lock, suppress(SpecError):  # those that were good once may be so still
                self._take(self._load())
            response = self._begin(request, read_s)
        try:
            with self._heard(request):
                yield Answer(response.status, response.headers, b""), response.stream(_READ_AT_ONCE)
        finally:
            response.close()  # the connection is kept where the body was read to its end

    def _begin(self, request: Request, read_s: float) -> urllib3.BaseHTTPResponse:
        headers = {
            "Accept": "*/*" if request.subresource == "log" else "application/json",
            "Content-Type": request.content_type,
            "User-Agent": f"kfp-volcano/{__version__}",
        }
        with self._lock:
            pool, host = self._pool, self._configuration.host
            token = self._configuration.get_api_key_with_prefix(_TOKEN)
        if token:
            headers[_TOKEN] = token
        with self._heard(request):
            response: urllib3.BaseHTTPResponse = pool.urlopen(
                request.method,
                host + request.path,
                body=None if request.body is None else json.dumps(request.body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        return response

    def _take(self, configuration: client.Configuration) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        self._configuration = configuration
        try:
            self._pool = client.ApiClient(configuration).rest_client.pool_manager
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:  # certificates, proxies
            raise SpecError(f"cannot make connections to {configuration.host}: {error}", source="kubeconfig") from error

    @contextmanager
    def _heard(self, request: Request) -> Iterator[None]:
        """Tell failures of the network apart."""
        try:
            yield
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise Silence(f"{self._configuration.host} cannot be reached: {error}", sent=False) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(_cause(error), ssl.SSLCertVerificationError):
                raise ForbiddenError(
                    f"the certificate of {self._configuration.host} is not trusted: {_cause(error)};"
                    " name its authority in the kubeconfig (certificate-authority)"
                ) from error
            raise Silence(f"no whole answer to {request}: {error}", sent=True) from error


def from_kubeconfig(file: Path | None = None, context: str | None = None) -> Connection:
    """The way that a kubeconfig names: by default `KUBECONFIG` or `~/.kube/config`, and its current context.

    Raises SpecError for a file that is not there or is wrong, and for a context it does not have.
    """
    where = str(file or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")

    def load() -> client.Configuration:
        made = client.Configuration()
        try:
            _set_proxy(made, _proxy_url(where, context))
            config.load_kube_config(where, context, client_configuration=made)
        except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
            raise SpecError(f"{error}{_contexts(where)}", source=f"kubeconfig {where}") from error
        return made

    return Connection(load)


def in_cluster(service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """The way that every pod has: its service account's token, read again as it is renewed.

    Raises SpecError outside a pod, or in one without a token.
    """

    def load() -> client.Configuration:
        made = client.Configuration()
        loader = config.incluster_config.InClusterConfigLoader(
            str(service_account / "token"), str(service_account / "ca.crt")
        )
        try:
            loader.load_and_set(made)
        except (config.ConfigException, OSError) as error:
            raise SpecError(f"this is no pod with a service account: {error}", source="in-cluster") from error
        _set_proxy(made, None)
        return made

    return Connection(load)


def _set_proxy(made: client.Configuration, url: str | None) -> None:
    """The kubeconfig's proxy, else the environment's, from which NO_PROXY may except the server."""
    environment = getproxies_environment()
    made.proxy = url or environment.get("https")
    made.no_proxy = None if url else environment.get("no")


def _proxy_url(where: str, context: str | None) -> str | None:
    """`proxy-url` of the context's cluster, which the library does not read."""
    found = KubeConfigMerger(where).config
    if found is None:
        return None
    chosen = found["contexts"].get_with_name(context or found["current-context"], safe=True)
    cluster = chosen and found["clusters"].get_with_name(chosen["context"]["cluster"], safe=True)
    url = cluster and cluster["cluster"].safe_get("proxy-url")
    return str(url) if url else None


def _contexts(where: str) -> str:
    """What contexts there are, for whoever named another."""
    try:
        names = [each["name"] for each in config.list_kube_config_contexts(where)[0]]
    except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError):
        return ""
    return f"; its contexts are {', '.join(names)}"


def _cause(error: BaseException) -> BaseException:
    """The first of a chain of errors."""
    while (before := error.__cause__ or error.__context__ or _reason(error)) is not None and before is not error:
        error = before
    return error


def _reason(error: BaseException) -> BaseException | None:
    found = next((each for each in error.args if isinstance(each, BaseException)), None)
    return found if found is not error else None
