# SPDX-License-Identifier: Apache-2.0
"""A connection to a KFP backend: kfp's client, its side effects left out, and requests that are tried again."""

from __future__ import annotations

import json
import logging
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import kfp
import kfp_server_api
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError, SpecError, UnavailableError
from kfp_volcano.pipelines.backend.access import POD_NAMESPACE, Access
from kfp_volcano.pipelines.backend.refusals import LaterError, UnauthenticatedError
from kfp_volcano.pipelines.backend.transport import Transport, UnsentError
from kfp_volcano.volcano.cluster.kubernetes.api import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Connection", "matching"]

_log = logging.getLogger(__name__)
Found = TypeVar("Found")
PAGE = 100
FIRST_S = 10.0


class _KfpClient(kfp.Client):
    """kfp's client as far as it finds the host and the credentials.

    Its constructor asks for the backend's health, five times with pauses and tracebacks, and may write a file into the
    user's home; both wait for an answer given here. Its `namespace` means where KFP is installed and where runs go, in
    turns.
    """

    def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
        """What keeps the constructor from asking."""
        del sleep_duration
        return SimpleNamespace(multi_user=None)

    @property
    def api(self) -> Any:
        """What sends the requests."""
        return self._run_api.api_client

    @property
    def settings(self) -> dict[str, Any]:
        """What kfp keeps of the user's choices."""
        return dict(self._context_setting)


class Connection:
    """Asks a backend, and asks again where that can help.

    Reading is tried again whatever happened. What creates something is tried again only if it was not sent, or once it
    has been looked whether it is there: a request without an answer may have been carried out.
    """

    def __init__(self, access: Access, patience: Patience | None = None) -> None:
        self._access = access
        self.patience = patience or Patience(total_s=60.0, first_s=0.5)
        self._known = self._answered = False
        self._connect()
        self._namespace = access.namespace or self.kfp.settings.get("namespace") or ""
        self._multi_user: bool | None = None

    def _connect(self) -> None:
        self.kfp = _client(self._access)
        self.kfp.api.rest_client = Transport(self.kfp.api.configuration)
        ui = self._access.complete().ui
        self.ui = ui if "://" in ui or not ui else f"https://{ui}"
        api = self.kfp.api
        self.runs = kfp_server_api.RunServiceApi(api)
        self.recurring_runs = kfp_server_api.RecurringRunServiceApi(api)
        self.experiments = kfp_server_api.ExperimentServiceApi(api)
        self.pipelines = kfp_server_api.PipelineServiceApi(api)
        self.uploads = kfp_server_api.PipelineUploadServiceApi(api)
        self.health = kfp_server_api.HealthzServiceApi(api)

    @property
    def host(self) -> str:
        """The URL that requests go to."""
        return str(self.kfp.api.configuration.host)

    @property
    def multi_user(self) -> bool:
        """Whether the backend keeps its users apart, by namespaces."""
        if self._multi_user is None:
            self._multi_user = bool(self.read(self.health.healthz_service_get_healthz).multi_user)
        return self._multi_user

    @property
    def namespace(self) -> str | None:
        """Where the caller's things are; None where the backend has but one place.

        Raises SpecError where the backend serves several users and no namespace is known.
        """
        if self._namespace:
            return self._namespace
        if not self.multi_user:
            return None
        if POD_NAMESPACE.is_file():
            return POD_NAMESPACE.read_text(encoding="utf-8").strip()
        raise SpecError("this backend serves several users: name your namespace", source="--namespace")

    @property
    def scope(self) -> dict[str, str]:
        """What listings are asked with so that they are of the caller's things. Raises as `namespace`."""
        return {"namespace": self.namespace} if self.namespace else {}

    def read(self, request: Callable[[], Found], *, patience_s: float | None = None) -> Found:
        """The answer to a request that may be repeated. Raises ClusterError."""
        return self._insist(request, patience_s, again=lambda _: True)

    def change(self, request: Callable[[], Found]) -> Found:
        """The answer to a request that changes something to what it says, whatever it is: it may be repeated."""
        return self.read(request)

    def remove(self, request: Callable[[], Any]) -> bool:
        """Delete something; False where it is gone already."""
        try:
            self.read(request)
        except NotFoundError:
            return False
        return True

    def create(self, request: Callable[[], Found], find: Callable[[], Found | None]) -> Found:
        """Create something, once: where an answer is missing, `find` tells whether it is there."""
        clock, ends_at = self.patience.clock, self.patience.clock() + self.patience.total_s
        tries = 0
        while True:
            tries += 1
            try:
                return self._insist(request, None, again=lambda error: isinstance(error, UnsentError))
            except UnsentError:
                raise
            except UnavailableError as error:
                found = self.read(find)
                if found is not None:
                    return found
                if clock() >= ends_at:
                    raise
                self._pause(tries, error)

    def create_or_find(self, request: Callable[[], Found], find: Callable[[], Found | None]) -> Found:
        """What was created, by this request or, at the same time, by another's."""
        try:
            return self.create(request, find)
        except ConflictError:
            found = self.read(find)
            if found is None:
                raise
            return found

    def pages(self, request: Callable[..., Any], field: str, **query: Any) -> Iterator[Any]:
        """All objects of a listing, page by page."""
        token = ""
        while True:
            answer = self.read(lambda at=token: request(page_size=PAGE, page_token=at, **query))
            yield from getattr(answer, field) or ()
            token = answer.next_page_token or ""
            if not token:
                return

    def raw(self, path: str) -> Any:
        """The JSON that the backend has at a path that its API's description does not name."""
        return self.read(
            lambda: self.kfp.api.call_api(
                path, "GET", response_type="object", auth_settings=["Bearer"], _return_http_data_only=True
            )
        )

    def _insist(
        self, request: Callable[[], Found], patience_s: float | None, again: Callable[[UnavailableError], bool]
    ) -> Found:
        patience = self.patience
        began = patience.clock()
        longest_s = patience.total_s if patience_s is None else patience_s
        tries = 0
        while True:
            tries += 1
            try:
                answer = self._authenticated(request)
            except UnavailableError as error:
                # Where nobody has ever answered, the address is wrong more often than the backend is starting.
                most_s = longest_s if self._answered or not isinstance(error, UnsentError) else min(longest_s, FIRST_S)
                if not again(error) or patience.clock() + self._pause_s(tries, error) > began + most_s:
                    raise
                self._pause(tries, error)
            else:
                self._known = self._answered = True
                return answer

    def _authenticated(self, request: Callable[[], Found]) -> Found:
        """Ask; where the backend has known us and does not any more, log in again and ask once more."""
        try:
            return request()
        except UnauthenticatedError:
            if not self._known:
                raise
            self._known = False
            self._connect()
            return request()
        except OSError as error:  # the file with the token
            raise SpecError(
                f"{error.filename or 'the credentials'}: {error.strerror}", source="--token-file"
            ) from error
        except UnicodeDecodeError as error:  # as above
            raise SpecError("the file with the token is not text", source="--token-file") from error
        except kfp_server_api.OpenApiException as error:
            raise ClusterError(f"the KFP backend at {self.host} does not answer as its API says: {error}") from error

    def _pause_s(self, tries: int, error: Exception) -> float:
        return self.patience.pause_s(tries, error.wait_s if isinstance(error, LaterError) else None)

    def _pause(self, tries: int, error: Exception) -> None:
        pause_s = self._pause_s(tries, error)
        _log.warning("%s; trying again in %.1f s", error, pause_s)
        self.patience.sleep(pause_s)


def matching(key: str, value: str) -> str:
    """A filter for listings: those whose `key` is `value`.

    Quoted once more than HTTP does: the backend unquotes what it has unquoted already
    (backend/src/apiserver/server/list_request_util.go, parseAPIFilter), and a `+` would become a space.
    """
    predicate = {"operation": "EQUALS", "key": key, "stringValue": value}
    return quote(json.dumps({"predicates": [predicate]}))


def _client(access: Access) -> _KfpClient:
    complete = access.complete()
    if not complete.host and not _cluster_is_known():
        raise SpecError("no KFP backend is named: --host URL, or KF_PIPELINES_ENDPOINT", source="--host")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return _KfpClient(
                host=complete.host or None,
                client_id=access.iap_client_id or None,
                namespace=access.kfp_namespace,
                existing_token=complete.token or None,
                credentials=ServiceAccountTokenVolumeCredentials(str(complete.token_file))
                if complete.token_file
                else None,
                cookies=complete.cookies or None,
                proxy=complete.proxy or None,
                ssl_ca_cert=str(access.ca_cert) if access.ca_cert else None,
                verify_ssl=access.verify_tls,
                kube_context=access.kube_context or None,
                ui_host=complete.ui or None,
            )
        except (ValueError, OSError) as error:
            raise SpecError(f"kfp cannot make a client: {error}", source="the KFP backend") from error


def _cluster_is_known() -> bool:
    """Whether kfp has a way to a backend that is not named."""
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) or any(
        Path(file).is_file() and Path(file).stat().st_size for file in files.split(os.pathsep)
    )
