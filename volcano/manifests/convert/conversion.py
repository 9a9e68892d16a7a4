# SPDX-License-Identifier: Apache-2.0
"""Files of jobs of other operators to TrainingJobs, each with the account of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import shown
from kfp_volcano.volcano.manifests.convert import cron, jax, mpi, paddle, pytorch, tensorflow, trainer, volcano, xgboost
from kfp_volcano.volcano.manifests.convert.assembly import assemble
from kfp_volcano.volcano.manifests.convert.documents import documents
from kfp_volcano.volcano.manifests.convert.runtimes import Runtimes, is_runtime
from kfp_volcano.volcano.manifests.convert.source import Account
from kfp_volcano.volcano.manifests.job import job_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.volcano.manifests.convert.documents import Document
    from kfp_volcano.volcano.manifests.convert.report import Entry

__all__ = ["KINDS", "Converted", "PassedOver", "Refused", "convert_files"]

_KINDS = {
    "PyTorchJob": pytorch.convert,
    "TFJob": tensorflow.convert,
    "MPIJob": mpi.convert,
    "XGBoostJob": xgboost.convert,
    "PaddleJob": paddle.convert,
    "JAXJob": jax.convert,
    "Job": volcano.convert,
    "JobTemplate": volcano.convert,
    "CronJob": cron.convert,
}
_VERSIONS = {
    **dict.fromkeys(_KINDS, ("kubeflow.org/v1",)),
    "MPIJob": ("kubeflow.org/v1", "kubeflow.org/v2beta1"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1",),
    "Job": ("batch.volcano.sh/v1alpha1",),
    "JobTemplate": ("flow.volcano.sh/v1alpha1",),
    "CronJob": ("batch.volcano.sh/v1alpha1",),
}
KINDS = tuple(_VERSIONS)
"""The kinds that can be converted; `Job`, `JobTemplate` and `CronJob` are Volcano's."""
_PLAIN = (("Job", "batch/v1"), ("CronJob", "batch/v1"))
"""Kubernetes' own, which are no training jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A TrainingJob, and what became of each field of the manifest it was."""

    source: str
    """The file, and where in it."""
    kind: str
    name: str
    spec: dict[str, Any]
    """The TrainingJob on the wire; `schemas.validation.training_job` takes it."""
    entries: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A document that is no TrainingJob, and why."""

    source: str
    error: SpecError

    def __str__(self) -> str:
        return "\n".join(
            str(problem) if problem.path == self.source else f"{self.source}: {problem}"
            for problem in self.error.problems
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """An object beside a job that is none itself, and stays as it is."""

    source: str
    what: str
    """Its kind and name."""

    def __str__(self) -> str:
        return f"{self.source}: {self.what} is no training job"


def convert_files(files: Mapping[str, str], *, queue: str = "default") -> Iterator[Converted | Refused | PassedOver]:
    """The TrainingJobs of files (name to text), in their order; `queue` is for jobs that name none.

    The TrainingRuntimes of a TrainJob are looked for in all files. What is no job, such as the ConfigMap beside one, is
    passed over in a file that has a job or a runtime; a file that has neither is refused.
    """
    found = {name: list(documents(text, name)) for name, text in files.items()}
    runtimes = Runtimes(document for those in found.values() for document in those if is_runtime(document))
    for name, those in found.items():
        results = [_convert(document, runtimes, queue) for document in those if not is_runtime(document)]
        if all(isinstance(result, PassedOver) for result in results) and not any(map(is_runtime, those)):
            yield _nothing(name, those)
        else:
            yield from results


def _nothing(name: str, those: Iterable[Document]) -> Refused:
    kinds = ", ".join(dict.fromkeys(map(_kind, those)))
    message = f"holds no training job, but {kinds}" if kinds else "is empty"
    return Refused(source=name, error=SpecError([Problem("kind", message, f"one of {', '.join(KINDS)}")]))


def _kind(document: Document) -> str:
    """The kind as a message names it: with its group where another group has a training job of that kind."""
    if document.kind in _VERSIONS:
        return f"{document.kind} of {document.api}"
    return document.kind or "something without a kind"


def _convert(document: Document, runtimes: Runtimes, queue: str) -> Converted | Refused | PassedOver:
    value, source = document.value, document.source
    if isinstance(value, SpecError):
        return Refused(source=source, error=value)
    versions = _VERSIONS.get(document.kind)
    if versions is None or (document.kind, document.api) in _PLAIN:
        metadata = value.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return PassedOver(source=source, what=f"{_kind(document)} {name}".rstrip())
    if document.api not in versions:
        what = f"{shown(document.api)} is no version of {document.kind} that can be converted"
        return Refused(source=source, error=SpecError([Problem("apiVersion", what, " or ".join(versions))]))
    account = Account()
    try:
        spec = _spec(document.kind, value, account, runtimes, queue)
        _check(spec)
    except SpecError as error:
        return Refused(source=source, error=error)
    return Converted(
        source=source, kind=document.kind, name=spec["metadata"]["name"], spec=spec, entries=account.entries
    )


def _spec(kind: str, value: dict[str, Any], account: Account, runtimes: Runtimes, queue: str) -> dict[str, Any]:
    view = account.open(value)
    view.text("apiVersion", to="apiVersion")
    view.text("kind", to="kind")
    job = trainer.convert(view, runtimes) if kind == "TrainJob" else _KINDS[kind](view)
    spec = assemble(job, account, queue=queue)
    account.close()
    return spec


def _check(spec: dict[str, Any]) -> None:
    """That the spec is valid and can be rendered: else the manifest asked for something that cannot be."""
    job = training_job(spec, source="the TrainingJob")
    job_manifest(job, name=job_name(job.name, "run"), run_id="run", step="convert", workers=job.workers.replicas.min)
