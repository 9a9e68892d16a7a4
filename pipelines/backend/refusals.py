# SPDX-License-Identifier: Apache-2.0
"""What a KFP backend's answers mean, as this project's errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import urllib3

from kfp_volcano.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LaterError", "UnauthenticatedError", "no_api", "refusal"]

_MOST = 600
_LOGIN = "say who you are: --token-file, KFP_VOLCANO_KFP_TOKEN, KFP_VOLCANO_KFP_COOKIES or --iap-client-id"


class UnauthenticatedError(ForbiddenError):
    """The backend does not know who asks: a token may have expired."""


class LaterError(UnavailableError):
    """The backend says when to come back: in `wait_s` seconds."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


_REFUSALS: dict[int, tuple[type[ClusterError], str]] = {
    401: (UnauthenticatedError, f"{{where}} does not accept the credentials ({{said}}): {_LOGIN}"),
    403: (ForbiddenError, "{where} refuses: {said}"),
    404: (NotFoundError, "{said}"),
    409: (ConflictError, "{said}"),
}
_INNER = re.compile(r"^(?:[A-Z]\w*Error|rpc error): ?")


def refusal(status: int, body: bytes, headers: Mapping[str, str], where: str) -> ClusterError:
    """The error that an answer other than 2xx means. `where` names the backend."""
    said = _message(body)
    if 300 <= status < 400:  # noqa: PLR2004 - HTTP's own
        there = headers.get("Location", "elsewhere")
        return UnauthenticatedError(
            f"{where} sends us to {there}: if that is a login, {_LOGIN}; if it is the same host, give that as --host"
        )
    if status == 429 or status >= 500:  # noqa: PLR2004 - HTTP's own
        message = f"{where} fails with {status}: {said}"
        wait_s = _retry_after_s(headers)
        return UnavailableError(message) if wait_s is None else LaterError(message, wait_s)
    if status == 404 and not _is_kfp(body):  # noqa: PLR2004 - HTTP's own
        return NotFoundError(f"{where} has no KFP API (404): is --host right?")
    kind, text = _REFUSALS.get(status, (InvalidError, "{said}"))
    return kind(text.format(where=where, said=said))


def no_api(where: str) -> ClusterError:
    """For an answer that is a page instead of JSON."""
    return UnauthenticatedError(f"{where} answers with a web page: if that is a login, {_LOGIN}; else see to --host")


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    try:
        return None if text is None else float(urllib3.Retry().parse_retry_after(text))
    except urllib3.exceptions.InvalidHeader:
        return None


def _message(body: bytes) -> str:
    """What the backend says, without the names of Go's types; of a body that is not its own, the beginning."""
    value = _json(body)
    text = value.get("message") or value.get("error") or value.get("error_message") or ""
    if not isinstance(text, str) or not text:
        text = body.decode(errors="replace")
    parts = [_INNER.sub("", part) for part in " ".join(text.split()).split(": ")]
    kept = [part for part in parts if part and not re.fullmatch(r"[A-Z]\w*Error", part)]
    return ": ".join(kept)[:_MOST] or "(no reason given)"


def _is_kfp(body: bytes) -> bool:
    return bool({"code", "error", "error_message"} & _json(body).keys())


def _json(body: bytes) -> dict[str, object]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
