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
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise UnsentError(self._silent(error)) from error
        except urllib3.exceptions.HTTPError as error:
            reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            if isinstance(reason, urllib3.exceptions.SSLError):
                raise self._no_tls(str(reason)) from error
            unsent = isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)
            raise (UnsentError if unsent else UnavailableError)(self._silent(reason or error)) from error
        if "html" in (answer.getheader("content-type") or ""):
            raise no_api(self._where)
        return answer

    def _refused(self, error: Any) -> Exception:
        if not error.status:
            return self._no_tls(str(error.reason))
        return refusal(error.status, error.body or b"", dict(error.headers or {}), self._where)

    def _no_tls(self, reason: str) -> Exception:
        """A certificate does not become trusted by waiting; a handshake that broke off may be one of a restart."""
        said = " ".join(reason.split())
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return ClusterError(
                f"{self._where} has a certificate that is not trusted here ({said}): give --ca-cert FILE"
            )
        return UnsentError(f"{self._where} does not take TLS ({said}): is it http:// rather than https://?")

    def _silent(self, error: Exception) -> str:
        reason = " ".join(str(error).rpartition(": ")[2].split()) or type(error).__name__
        return f"{self._where} cannot be reached: {reason}"
