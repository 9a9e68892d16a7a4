# SPDX-License-Identifier: Apache-2.0
"""The way out of `kfp_server_api`, with what it lacks: timeouts, errors one can act on, no page taken for an answer.

Met in kfp-server-api 2.17: it sets no timeout; a float as timeout is ignored without a word; what urllib3 raises comes
through raw; a TLS error ends in an AttributeError; a login page, reached over a redirect, becomes an object whose every
field is None.
"""

from __future__ import annotations

from typing import Any

import urllib3
from kfp_server_api import rest

from kfp_volcano.errors import ClusterError, UnavailableError
from kfp_volcano.pipelines.backend.refusals import no_api, refusal

__all__ = ["Transport", "UnsentError"]

_NO_CONNECTION = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
CONNECT_S, ANSWER_S = 10, 60
"""A large pipeline takes the backend some seconds to take in."""


class UnsentError(UnavailableError):
    """No connection: whatever was asked has not been done."""


class Transport(rest.RESTClientObject):
    """Sends a request once; every failure is a `ClusterError`."""

    def __init__(self, configuration: Any) -> None:
        configuration.retries = urllib3.Retry(0, redirect=False, raise_on_redirect=False)
        super().__init__(configuration)
        self._where = f"the KFP backend at {configuration.host}"

    def request(self, method: str, url: str, **options: Any) -> Any:
        """An answer with a status of 2xx. Raises ClusterError."""
        options["_request_timeout"] = options.get("_request_timeout") or (CONNECT_S, ANSWER_S)
        options["_preload_content"] = True
        try:
            answer = super().request(method, url, **options)
        except rest.ApiException as error:
            raise self._refused(error) from error
        except urllib3.exceptions.HTTPError as error:
            raise self._unanswered(error) from error
        if "html" in (answer.getheader("content-type") or ""):
            raise no_api(self._where)
        return answer

    def _refused(self, error: Any) -> ClusterError:
        if not error.status:
            return self._no_tls(error.reason)
        return refusal(error.status, error.body or b"", dict(error.headers or {}), self._where)

    def _unanswered(self, error: urllib3.exceptions.HTTPError) -> ClusterError:
        reason = (error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else None) or error
        if isinstance(reason, urllib3.exceptions.SSLError):
            return self._no_tls(reason)
        text = " ".join(str(reason).rpartition(": ")[2].split()) or type(reason).__name__
        kind = UnsentError if isinstance(reason, _NO_CONNECTION) else UnavailableError
        return kind(f"{self._where} cannot be reached: {text}")

    def _no_tls(self, reason: object) -> ClusterError:
        """A certificate does not become trusted by waiting; a handshake that broke off may be one of a restart."""
        said = " ".join(str(reason).split())
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return ClusterError(
                f"{self._where} has a certificate that is not trusted here ({said}): give --ca-cert FILE"
            )
        return UnsentError(f"{self._where} does not take TLS ({said}): is it http:// rather than https://?")
