# SPDX-License-Identifier: Apache-2.0
"""A small client of the API server, made for asking many things fast and for looking at refusals closely.

It speaks plain JSON over a pool of connections and may be used by several threads at once. It checks nothing itself:
what arrives at the server is what the test wrote.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

__all__ = ["Answer", "Client"]

_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
_AT_ONCE = urllib3.Timeout(connect=2.0, read=2.0)
"""A server that is just starting may take a request and never answer it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said to one request."""

    status: int
    body: Mapping[str, Any]
    """An object, a list, or a Status."""
    warnings: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether it did what it was asked."""
        return self.status < 400

    @property
    def message(self) -> str:
        """Why it refused; empty where it did not."""
        return "" if self.accepted else str(self.body.get("message", ""))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it found at fault, e.g. `spec.tasks[0].replicas`; empty where it named none."""
        causes = (self.body.get("details") or {}).get("causes") or () if not self.accepted else ()
        return tuple(cause["field"] for cause in causes if cause.get("field") not in {None, "<nil>"})

    def expect(self) -> Mapping[str, Any]:
        """The body of an accepted request. Raises AssertionError with the server's reason otherwise."""
        assert self.accepted, f"{self.status}: {self.message}"
        return self.body


class Client:
    """Requests of one user."""

    def __init__(self, url: str, authority: Path, *, certificate: Path | None = None, key: Path | None = None) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=8,
            block=True,
            timeout=_TIMEOUT,
            retries=False,
            ca_certs=str(authority),
            cert_file=certificate and str(certificate),
            key_file=key and str(key),
        )
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}
        self._discovering = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: urllib3.Timeout = _TIMEOUT,
    ) -> Answer:
        """One request; raises urllib3's errors where the server cannot be reached."""
        raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self._pool.request(
            method,
            f"{self._url}{path}{'?' + urlencode(query) if query else ''}",
            body=raw,
            headers={"Accept": "application/json", "Content-Type": content_type},
            timeout=timeout,
        )
        try:
            parsed = json.loads(response.data)
        except ValueError:
            parsed = {"message": response.data.decode(errors="replace")}
        return Answer(response.status, parsed, tuple(response.headers.getlist("Warning")))

    def ready(self) -> bool:
        """Whether the server says that it serves."""
        try:
            return self.request("GET", "/readyz", timeout=_AT_ONCE).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def create(self, manifest: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False) -> Answer:
        """Create an object, or only find out whether that would work (`dry_run`).

        `strict` refuses fields that the kind does not have; otherwise they are dropped with a warning.
        """
        query = {"fieldValidation": "Strict" if strict else "Warn", **({"dryRun": "All"} if dry_run else {})}
        return self.request("POST", self.path(manifest), manifest, query=query)

    def update(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Replace an object."""
        query = {"dryRun": "All"} if dry_run else None
        return self.request("PUT", self.path(manifest, manifest["metadata"]["name"]), manifest, query=query)

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Answer:
        """Read an object."""
        return self.request("GET", self.path(_reference(api_version, kind, namespace), name))

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "", *, dry_run: bool = False) -> Answer:
        """Delete an object, and what it owns in the background."""
        query = {"propagationPolicy": "Background", **({"dryRun": "All"} if dry_run else {})}
        return self.request("DELETE", self.path(_reference(api_version, kind, namespace), name), query=query)

    def patch(
        self, manifest: Mapping[str, Any], patch: Sequence[Mapping[str, Any]], *, dry_run: bool = False
    ) -> Answer:
        """Apply an RFC 6902 patch to the object that `manifest` names."""
        path = self.path(manifest, manifest["metadata"]["name"])
        query = {"dryRun": "All"} if dry_run else None
        return self.request("PATCH", path, list(patch), query=query, content_type="application/json-patch+json")

    def install(self, *files: Path) -> None:
        """Create every object of some YAML files. Raises AssertionError for one that is refused."""
        for file in files:
            for manifest in yaml.load_all(file.read_text(encoding="utf-8"), Loader=_SafeLoader):
                self.create(manifest).expect()

    def close(self) -> None:
        """Give the connections back."""
        self._pool.clear()

    def path(self, manifest: Mapping[str, Any], name: str = "") -> str:
        """Where the object that `manifest` names is served, or without a name where its kind is."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        plural, namespaced = self._kind(version, kind)
        parts = ["", *_group(version)]
        if namespaced:
            parts += ["namespaces", manifest.get("metadata", {}).get("namespace") or "default"]
        return "/".join([*parts, plural, *([name] if name else [])])

    def _kind(self, version: str, kind: str) -> tuple[str, bool]:
        """A kind's name in paths, and whether it lives in namespaces: what the server's discovery says."""
        with self._discovering:
            if (version, kind) not in self._kinds:
                served = self.request("GET", "/".join(["", *_group(version)])).expect()["resources"]
                self._kinds |= {
                    (version, each["kind"]): (each["name"], each["namespaced"])
                    for each in served
                    if "/" not in each["name"]
                }
            return self._kinds[version, kind]


def _group(version: str) -> list[str]:
    return ["apis" if "/" in version else "api", version]


def _reference(api_version: str, kind: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace}}
