# SPDX-License-Identifier: Apache-2.0
"""What the API server's refusals mean, as this project's errors, each with what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.kubernetes.connection import Answer
    from kfp_volcano.volcano.cluster.kubernetes.request import Request

__all__ = ["INSTALL", "message_of", "refusal", "rule", "unserved"]

_FIRST_REFUSAL, _TOO_MANY, _FIRST_FAILURE = 400, 429, 500
_VOLCANO = ".volcano.sh/"
INSTALL = (
    "kubectl apply -f https://raw.githubusercontent.com/volcano-sh/volcano/v1.15.0/installer/volcano-development.yaml"
)
_RBAC = re.compile(r"cannot (\S+) resource")
_MOST_OF_A_BODY = 200


def refusal(request: Request, answer: Answer) -> ClusterError | None:
    """The error that an answer means; None where the server did as it was asked."""
    return None if answer.status < _FIRST_REFUSAL else _error(request, answer, message_of(answer))


def _error(request: Request, answer: Answer, message: str) -> ClusterError:
    match answer.status:
        case 401:
            remedy = "log in again, or renew the token"
            return ForbiddenError(f"{request}: the cluster does not accept the credentials ({message}): {remedy}")
        case 403:
            return _forbidden(request, message)
        case 404:
            return NotFoundError(message) if _names_an_object(answer) else unserved(request)
        case 409 | 410:
            return ConflictError(message)
        case status if status >= _FIRST_FAILURE or status == _TOO_MANY:
            return UnavailableError(f"{request}: {status} {message}")
    causes = (answer.json.get("details") or {}).get("causes") or ()
    return InvalidError(message, fields=[cause["field"] for cause in causes if cause.get("field")])


def message_of(answer: Answer) -> str:
    """What the server says; of a body that is not its own, the beginning."""
    said = answer.json.get("message")
    return str(said) if said else answer.body.decode(errors="replace").strip()[:_MOST_OF_A_BODY] or "(no reason given)"


def unserved(request: Request) -> InvalidError:
    """For a kind that the API server does not have."""
    kind = request.kind
    remedy = f"install Volcano: {INSTALL}" if _VOLCANO in kind.api_version else "use a version of Kubernetes that does"
    return InvalidError(f"this cluster does not serve {kind.name} ({kind.api_version}): {remedy}")


def rule(request: Request) -> str:
    """The RBAC rule that would allow a request, as YAML on one line."""
    group = request.group or '""'
    return f"- {{apiGroups: [{group}], resources: [{request.resource}], verbs: [{request.verb}]}}"


def _forbidden(request: Request, message: str) -> ClusterError:
    """A permission that is missing, or admission (quotas, limits, pod security), which answers with 403 too."""
    if not _RBAC.search(message):
        return InvalidError(message)
    scoped = request.kind.namespaced and request.namespace
    role = f"a Role in namespace {request.namespace}" if scoped else "a ClusterRole"
    return ForbiddenError(f"{message}\nadd this rule to {role} that is bound to it:\n  {rule(request)}")


def _names_an_object(answer: Answer) -> bool:
    """Whether it is the object that is not there, or its namespace, and not the kind."""
    return bool((answer.json.get("details") or {}).get("name"))
