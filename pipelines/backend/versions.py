# SPDX-License-Identifier: Apache-2.0
"""Pipelines and their versions at a backend: one version for each content, however often it is uploaded."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kfp_server_api

from kfp_volcano.errors import UnavailableError
from kfp_volcano.pipelines.backend.connection import matching
from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.pipelines.backend.connection import Connection
    from kfp_volcano.pipelines.ir import CompiledPipeline

__all__ = ["Version", "upload", "version_name"]

_LONGEST_NAME = 63
"""Where the backend keeps pipelines in Kubernetes their names are those of objects."""


@dataclass(frozen=True, slots=True)
class Version:
    """A pipeline version at the backend."""

    pipeline_id: str
    version_id: str
    name: str
    created: bool
    """Whether it was uploaded just now; else it was there."""

    @property
    def reference(self) -> Any:
        """As runs and schedules name it."""
        return kfp_server_api.V2beta1PipelineVersionReference(
            pipeline_id=self.pipeline_id, pipeline_version_id=self.version_id
        )


def upload(connection: Connection, pipeline: CompiledPipeline, *, name: str | None = None) -> Version:
    """Have a version with exactly this content, under the pipeline of this name (by default its own)."""
    title = name or pipeline.name
    pipeline_id = _pipeline_id(connection, title)
    named = version_name(title, pipeline.digest)

    def find() -> Any | None:
        listing = connection.pages(
            lambda **query: connection.pipelines.pipeline_service_list_pipeline_versions(pipeline_id, **query),
            "pipeline_versions",
            filter=matching("name", named),
        )
        return next(listing, None)

    version = find()
    if version is not None:
        return Version(pipeline_id, version.pipeline_version_id, named, created=False)
    try:
        version = _uploaded(connection, pipeline, pipeline_id, named, find)
    except UnavailableError as error:
        signs = "".join(sorted({sign for sign in pipeline.text if not sign.isascii()}))
        if not signs:
            raise
        # The backend hides what its database says.
        hint = f"if it goes on: the pipeline holds {signs!r}, which a database in Latin-1 cannot store"
        raise UnavailableError(f"{error} ({hint})") from error
    return Version(pipeline_id, version.pipeline_version_id, named, created=True)


def _uploaded(
    connection: Connection, pipeline: CompiledPipeline, pipeline_id: str, name: str, find: Callable[[], Any | None]
) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(pipeline.text, encoding="utf-8")
        description = f"content sha256:{pipeline.digest}, uploaded by kfp-volcano {__version__}"

        def request() -> Any:
            return connection.uploads.upload_pipeline_version(
                str(file), name=name, pipelineid=pipeline_id, description=description
            )

        return connection.create_or_find(request, find)


def version_name(pipeline: str, digest: str) -> str:
    """What a version with this content is called."""
    stem = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")[: _LONGEST_NAME - 13].rstrip("-")
    return f"{stem or 'pipeline'}-{digest[:12]}"


def _pipeline_id(connection: Connection, name: str) -> str:
    def find() -> Any | None:
        query = {"filter": matching("name", name), **connection.scope}
        return next(connection.pages(connection.pipelines.pipeline_service_list_pipelines, "pipelines", **query), None)

    body = kfp_server_api.V2beta1Pipeline(
        name=name,
        display_name=name,
        namespace=connection.namespace,
        description=f"uploaded by kfp-volcano {__version__}",
    )
    found = find() or connection.create_or_find(
        lambda: connection.pipelines.pipeline_service_create_pipeline(pipeline=body), find
    )
    return str(found.pipeline_id)
