# SPDX-License-Identifier: Apache-2.0
"""Who keeps a schedule: a KFP backend, or with `--kubeconfig` or `--context` a cluster without one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kfp_volcano.cli.backend import backend_options
from kfp_volcano.cli.options import cluster_options
from kfp_volcano.cli.verbosity import say
from kfp_volcano.reading import read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.pipelines.backend.access import Access
    from kfp_volcano.schemas.schedule import Schedules

__all__ = ["Keepers", "Work", "keeper_options"]


def keeper_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a KFP backend and of a cluster, given to the command as one `keepers`."""

    @functools.wraps(command)
    def with_keepers(access: Access, kubeconfig: Path | None, context: str | None, **options: Any) -> Any:
        if access.host and (kubeconfig or context):
            raise click.UsageError("say --host for schedules of KFP, or --kubeconfig or --context for CronJobs")
        return command(keepers=Keepers(access, kubeconfig, context), **options)

    decorated: Callable[..., Any] = cluster_options(backend_options(with_keepers))
    return decorated


@dataclass(frozen=True, slots=True)
class Work:
    """What a schedule runs."""

    text: str
    arguments: Callable[[Mapping[str, str]], Mapping[str, Any]]
    """From parameters as they are written to those of a pipeline."""
    namespace: str = ""
    """Where it has to run; empty where that is not its own business."""


@dataclass(frozen=True, slots=True)
class Keepers:
    """The one that the options name."""

    access: Access
    kubeconfig: Path | None
    context: str | None

    @property
    def on_kubernetes(self) -> bool:
        """Whether schedules are CronJobs."""
        return bool(self.kubeconfig or self.context)

    def only_a_backend_knows(self, *parameters: str) -> None:
        """Refuse options that mean nothing for CronJobs."""
        command = click.get_current_context()
        told = [
            parameter.opts[0]
            for parameter in command.command.params
            if parameter.name in parameters
            and command.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ]
        if self.on_kubernetes and told:
            raise click.UsageError(f"{', '.join(told)}: of a KFP backend alone; a TrainingJob says all of itself")

    def work(self, file: Path, which: str | None) -> Work:
        """A pipeline, or for CronJobs a TrainingJob. Raises SpecError for what is neither, or wrong."""
        if not self.on_kubernetes:
            from kfp_volcano.pipelines.ir import compiled  # noqa: PLC0415

            ir = compiled(file, name=which)
            return Work(ir.text, ir.arguments)
        from kfp_volcano.platform_files import in_its_pool, resource_profiles  # noqa: PLC0415
        from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415
        from kfp_volcano.schemas.wire import spec_text  # noqa: PLC0415

        job = in_its_pool(training_job(read_document(file), source=str(file), profiles=resource_profiles()))
        return Work(spec_text(job), dict, job.namespace)

    def keeper(self, namespace: str = "", **options: Any) -> Schedules:
        """The keeper. `namespace` is the work's, else that of the options counts; `options` are KFP's alone."""
        if self.on_kubernetes:
            from kfp_volcano.volcano.cluster.connect import kubernetes  # noqa: PLC0415
            from kfp_volcano.volcano.launcher.cron_jobs import CronJobs  # noqa: PLC0415

            place = self.access.namespace or namespace or "default"
            return CronJobs(kubernetes(self.kubeconfig, self.context), place)
        from kfp_volcano.pipelines.backend.recurring import RecurringRuns  # noqa: PLC0415
        from kfp_volcano.pipelines.client import Client  # noqa: PLC0415

        return RecurringRuns(Client.of(self.access).connection, tell=say, **options)
