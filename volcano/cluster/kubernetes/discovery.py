# SPDX-License-Identifier: Apache-2.0
"""What an API server is and has, and what somebody may do there: for `kfp-volcano doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError, NotFoundError
from kfp_volcano.volcano.cluster.base import Kind
from kfp_volcano.volcano.cluster.kubernetes.api import checked
from kfp_volcano.volcano.cluster.kubernetes.request import Request

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.kubernetes.api import Api

__all__ = ["Discovery"]

_AUTHORIZATION = "authorization.k8s.io/v1"
_OURSELVES = Kind("SelfSubjectAccessReview", _AUTHORIZATION, "selfsubjectaccessreviews", namespaced=False)
_ANOTHER = Kind("SubjectAccessReview", _AUTHORIZATION, "subjectaccessreviews", namespaced=False)


class Discovery:
    """Questions about an API server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._served: dict[str, set[str]] = {}

    def version(self) -> str:
        """Its own, e.g. `v1.35.4`."""
        found = self._api.read(Request("get", Kind("Version", "v1", ""), raw_path="/version"))
        return str(found.get("gitVersion"))

    def serves(self, kind: Kind) -> bool:
        """Whether it has a kind: for those of a CRD, whether that is installed in the version that is used here."""
        if kind.api_version not in self._served:
            request = Request("get", Kind("APIResourceList", kind.api_version, "", namespaced=False))
            try:
                content = self._api.read(request)
            except (InvalidError, NotFoundError):
                content = {}
            self._served[kind.api_version] = {str(each["name"]) for each in content.get("resources") or ()}
        return kind.plural in self._served[kind.api_version]

    def allows(self, request: Request, *, account: str | None = None) -> bool:
        """Whether we may send a request, or the service account of this name in the request's namespace may.

        Raises ForbiddenError where we may not ask about others.
        """
        asked = {
            "verb": request.verb,
            "group": request.group,
            "resource": request.kind.plural,
            "subresource": request.subresource,
            "namespace": request.namespace,
            "name": request.name,
        }
        spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
        if account is not None:
            group = "system:serviceaccounts"
            spec["user"] = f"system:serviceaccount:{account.replace('/', ':')}"
            spec["groups"] = [group, f"{group}:{account.partition('/')[0]}", "system:authenticated"]
        kind = _OURSELVES if account is None else _ANOTHER
        review = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        question = Request("create", kind, body=review)
        return bool(checked(question, self._api.ask(question).answer)["status"].get("allowed"))

    def admits(self, request: Request) -> bool:
        """Whether admission would take an object; nothing is created. Raises ClusterError where it cannot be asked."""
        dry = Request(request.verb, request.kind, request.namespace, body=request.body, query={"dryRun": "All"})
        try:
            checked(dry, self._api.ask(dry).answer)
        except InvalidError:
            return False
        return True
