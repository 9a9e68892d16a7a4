# SPDX-License-Identifier: Apache-2.0
"""`Client`: pipelines on a KFP backend, from Python."""

from __future__ import annotations

import uuid
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfp_volcano.pipelines.backend import runs, versions
from kfp_volcano.pipelines.backend.access import Access
from kfp_volcano.pipelines.backend.connection import Connection
from kfp_volcano.pipelines.backend.recurring import RecurringRuns
from kfp_volcano.pipelines.ir import CompiledPipeline, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.kubernetes.api import Patience

__all__ = ["Client"]

DEFAULT_EXPERIMENT = "Default"


class Client:
    """Runs pipelines on a KFP backend.

    Where the backend is and what lets one in are the fields of `Access`, by keyword (`host`, `namespace`, `token`,
    `token_file`, `cookies`, `ca_cert` …); what is left out comes from the environment.

    Raises SpecError for what is wrong with them; nothing is sent yet.
    """

    def __init__(self, host: str = "", *, patience: Patience | None = None, **access: Any) -> None:
        self.connection = Connection(Access(host=host, **access), patience)

    @classmethod
    def of(cls, access: Access, patience: Patience | None = None) -> Client:
        """A client for an access that is whole already."""
        return cls(patience=patience, **{each.name: getattr(access, each.name) for each in fields(access)})

    @property
    def kfp(self) -> Any:
        """The `kfp.Client` underneath, for all that this class does not do."""
        return self.connection.kfp

    def schedules(
        self, *, experiment: str = DEFAULT_EXPERIMENT, service_account: str = "", backend_zone: str = "UTC"
    ) -> RecurringRuns:
        """Schedules by name, kept as recurring runs: a `kfp_volcano.schemas.schedule.Schedules`.

        `backend_zone` is what the backend's administrator set as CRON_SCHEDULE_TIMEZONE.
        """
        return RecurringRuns(
            self.connection, experiment=experiment, service_account=service_account, backend_zone=backend_zone
        )

    def upload(self, pipeline: Any, *, name: str | None = None) -> versions.Version:
        """Have the pipeline at the backend; the same content again is the same version.

        Args:
            pipeline: A pipeline function, the path of a `.py` file that holds one, or of compiled IR `.yaml`.
            name: The pipeline's name there; by default its own.

        Raises SpecError for a pipeline that is wrong, ClusterError for what the backend refuses or does not answer.
        """
        return versions.upload(self.connection, _compiled(pipeline), name=name)

    def submit(
        self,
        pipeline: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        run_name: str | None = None,
        experiment: str = DEFAULT_EXPERIMENT,
        pipeline_name: str | None = None,
        service_account: str | None = None,
        pipeline_root: str | None = None,
    ) -> runs.Run:
        """Upload the pipeline, start a run of it, and return that.

        Args:
            pipeline: As for `upload`.
            parameters: The pipeline's; texts are turned into the types it declares.
            run_name: By default the pipeline's name and the time.
            experiment: Made if it is not there.
            pipeline_name: As `name` for `upload`.
            service_account: Of the run's steps; by default the backend's.
            pipeline_root: Where outputs are stored; by default the backend's.

        Raises SpecError, before anything is sent, for a wrong pipeline and for each parameter that is wrong;
        ClusterError for what the backend refuses or does not answer.
        """
        ir = _compiled(pipeline)
        arguments = ir.arguments(parameters or {})
        version = versions.upload(self.connection, ir, name=pipeline_name)
        return runs.create(
            self.connection,
            version,
            name=run_name or f"{pipeline_name or ir.name} {datetime.now().astimezone():%Y-%m-%d %H-%M-%S}",
            experiment=experiment,
            parameters=arguments,
            service_account=service_account,
            pipeline_root=pipeline_root,
            token=uuid.uuid4().hex,
        )

    def run(self, run_id: str) -> runs.Run:
        """A run that is there already."""
        return runs.Run(self.connection, run_id)


def _compiled(pipeline: Any) -> CompiledPipeline:
    return pipeline if isinstance(pipeline, CompiledPipeline) else compiled(pipeline)
