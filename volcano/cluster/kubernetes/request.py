# SPDX-License-Identifier: Apache-2.0
"""A request to the API server, by what it is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Kind

__all__ = ["Request"]

_METHODS = {"create": "POST", "get": "GET", "list": "GET", "watch": "GET", "patch": "PATCH", "delete": "DELETE"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `verb` is RBAC's: create, get, list, watch, patch or delete."""

    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    raw_path: str = ""
    """In place of the path of a kind, for what is no object."""

    def __str__(self) -> str:
        what = f"{self.kind.name} {'/'.join(part for part in (self.namespace, self.name) if part)}".rstrip()
        return f"{self.verb} {self.subresource + ' of ' if self.subresource else ''}{what}"

    @property
    def method(self) -> str:
        """The HTTP method."""
        return _METHODS[self.verb]

    @property
    def group(self) -> str:
        """The API group, empty for the core's."""
        return self.kind.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """What RBAC calls it, e.g. `pods/log`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def path(self) -> str:
        """Path and query."""
        if self.raw_path:
            return self.raw_path
        parts = ["apis" if self.group else "api", self.kind.api_version]
        if self.kind.namespaced and self.namespace:
            parts += ["namespaces", self.namespace]
        parts += [part for part in (self.kind.plural, self.name, self.subresource) if part]
        path = "/" + "/".join(quote(part, safe="/" if part == self.kind.api_version else "") for part in parts)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def content_type(self) -> str:
        """Of the body; a patch is a JSON Patch."""
        return "application/json-patch+json" if self.verb == "patch" else "application/json"
