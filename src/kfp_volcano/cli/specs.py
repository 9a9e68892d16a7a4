# SPDX-License-Identifier: Apache-2.0
"""The commands on TrainingJobs as files: `validate`, `render`, `explain` and `diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfp_volcano.cli.completion import complete_field
from kfp_volcano.cli.options import pools_option, profiles_option
from kfp_volcano.errors import SpecError
from kfp_volcano.reading import read_document
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["diff", "explain", "render", "validate"]

spec_argument = click.argument("spec", type=click.Path(path_type=Path))


@click.command()
@spec_argument
@profiles_option
def validate(spec: Path, profiles: Path | None) -> None:
    """Check a TrainingJob: every problem at once, each with its place.

    \b
    Example: kfp-volcano validate job.yaml
    """
    job = _read(spec, profiles)
    replicas = job.workers.replicas
    size = ("" if replicas.fixed else f"{replicas.min} to ") + counted(replicas.max, "worker")
    click.echo(f"{spec}: {job.namespace}/{job.name} is valid: {size} in queue {job.queue}")


@click.command()
@spec_argument
@click.option("--workers", type=int, help="Start with this many workers; by default the least.")
@click.option("--run-id", default="render", show_default=True, help="The run id that names the Job.")
@profiles_option
@pools_option
def render(spec: Path, *, workers: int | None, run_id: str, profiles: Path | None, pools_file: Path | None) -> None:
    """Print the Volcano manifests of a TrainingJob, as YAML.

    \b
    Example: kfp-volcano render job.yaml | kubectl apply --dry-run=server -f -
    """
    from kfp_volcano.platform_files import in_its_pool  # noqa: PLC0415
    from kfp_volcano.schemas.names import job_name  # noqa: PLC0415
    from kfp_volcano.schemas.records import RENDERED  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.job import manifests  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml  # noqa: PLC0415

    job = in_its_pool(_read(spec, profiles), pools_file)
    replicas = job.workers.replicas
    workers = replicas.min if workers is None else workers
    if workers not in (replicas.min, *replicas.sizes):
        raise SpecError(f"{workers} is not one of {', '.join(map(str, replicas.sizes))}", source="--workers")
    objects = manifests(job, name=job_name(job.name, run_id), run_id=run_id, step=RENDERED, workers=workers)
    click.echo(manifest_yaml(objects), nl=False)


@click.command()
@click.argument("field", default="", shell_complete=complete_field)
@click.option("--schema", is_flag=True, help="Print a kind's whole JSON Schema, for editors and other validators.")
def explain(field: str, *, schema: bool) -> None:
    """Print the documentation of a field, and what is below it.

    Of a TrainingJob, or of the kind that the field begins with: QueueTree, GPUPools, Policy,
    ResourceProfiles or Scenario.

    \b
    Example: kfp-volcano explain spec.elasticity
             kfp-volcano explain GPUPools.spec.pools
             kfp-volcano explain --schema > training-job.v1.schema.json
    """
    from kfp_volcano.schemas.explain import explain as explanation  # noqa: PLC0415
    from kfp_volcano.schemas.explain import schema_text  # noqa: PLC0415

    click.echo(schema_text(field or "TrainingJob") if schema else explanation(field), nl=False)


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@profiles_option
def diff(before: Path, after: Path, profiles: Path | None) -> None:
    """Show what differs between the manifests of two TrainingJobs: nothing where they mean the same.

    \b
    Example: kfp-volcano diff job.yaml job-2.yaml
    """
    from kfp_volcano.volcano.manifests.diff import lines  # noqa: PLC0415
    from kfp_volcano.volcano.manifests.job import manifests  # noqa: PLC0415

    jobs = [_read(path, profiles) for path in (before, after)]
    name = jobs[0].name
    first, second = (
        manifests(job, name=name, run_id="diff", step="diff", workers=job.workers.replicas.initial) for job in jobs
    )
    for line in lines(first, second):
        click.echo(line)


def _read(path: Path, profiles: Path | None = None) -> TrainingJob:
    from kfp_volcano.platform_files import resource_profiles  # noqa: PLC0415
    from kfp_volcano.schemas.validation import training_job  # noqa: PLC0415

    return training_job(read_document(path), source=str(path), profiles=resource_profiles(profiles))
