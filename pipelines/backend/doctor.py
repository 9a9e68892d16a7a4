# SPDX-License-Identifier: Apache-2.0
"""What a KFP backend says of itself, seen from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, ForbiddenError, SpecError, UnavailableError
from kfp_volcano.volcano.launcher.doctor import Finding, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.pipelines.backend.connection import Connection

__all__ = ["examine_backend"]

_MADE_FOR = (2, 17)


def examine_backend(connection: Connection) -> Iterator[Finding]:
    """Look at a backend; nothing is changed. Ends early where it cannot be reached."""
    try:
        health = connection.raw("/apis/v2beta1/healthz") or {}
    except UnavailableError as error:
        yield Finding("kfp backend", "does not answer", ok=False, remedy=str(error))
        return
    except ClusterError as error:
        found = "lets nobody in" if isinstance(error, ForbiddenError) else "is none"
        yield Finding("kfp backend", found, ok=False, remedy=str(error))
        return
    yield _version(str(health.get("tag_name") or ""), connection.host)
    yield from _namespace(connection)
    remedy = "submit something: only a run shows whether they can be stored"
    yield Finding("kfp artifacts", "not tried", ok=False, remedy=remedy, required=False)


def _version(tag: str, host: str) -> Finding:
    this = version_of(tag)
    if this is None:
        return Finding("kfp backend", f"answers at {host}; says no version", ok=True)
    made_for = ".".join(map(str, _MADE_FOR))
    remedy = f"this version was made for KFP {made_for}"
    return Finding("kfp backend", f"{tag} at {host}", this >= _MADE_FOR, remedy, required=False)


def _namespace(connection: Connection) -> Iterator[Finding]:
    """Whether runs may be seen where they are to be; that they may be made only making one shows."""
    try:
        namespace = connection.namespace
    except SpecError as error:
        yield Finding("kfp namespace", "none is named", ok=False, remedy=str(error))
        return
    listing = connection.experiments.experiment_service_list_experiments
    try:
        connection.read(lambda: listing(page_size=1, **connection.scope))
    except ClusterError as error:
        yield Finding("kfp namespace", f"{namespace} is not yours", ok=False, remedy=str(error))
        return
    yield Finding("kfp namespace", namespace or "one for all users", ok=True)
