"""Files of jobs of other operators to TrainingJobs, each with the account of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import shown
from kfp_volcano.volcano.manifests.convert import jax, mpi, paddle, pytorch, tensorflow, trainer, volcano, xgboost
from kfp_volcano.volcano.manifests.convert.assembly import assemble
from kfp_volcano.volcano.manifests.convert.documents import documents
from kfp_volcano.volcano.manifests.convert.runtimes import Runtimes, is_runtime
from kfp_volcano.volcano.manifests.convert.source import Account
from kfp_volcano.volcano.manifests.job import job_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.volcano.manifests.convert.documents import Document
    from kfp_volcano.volcano.manifests.convert.report import Entry

__all__ = ["KINDS", "Converted", "Refused", "convert_files"]

_KUBEFLOW = {
    "PyTorchJob": pytorch.convert,
    "TFJob": tensorflow.convert,
    "MPIJob": mpi.convert,
    "XGBoostJob": xgboost.convert,
    "PaddleJob": paddle.convert,
    "JAXJob": jax.convert,
}
_VERSIONS = {
    **dict.fromkeys(_KUBEFLOW, ("kubeflow.org/v1",)),
    "MPIJob": ("kubeflow.org/v1", "kubeflow.org/v2beta1"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1",),
    "Job": ("batch.volcano.sh/v1alpha1",),
}
KINDS = tuple(_VERSIONS)
"""The kinds that can be converted; `Job` is Volcano's."""


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
        return "\n".join(f"{self.source}: {problem}" for problem in self.error.problems)


def convert_files(files: Mapping[str, str], *, queue: str = "default") -> Iterator[Converted | Refused]:
    """The TrainingJobs of files (name to text), in their order; `queue` is for jobs that name none.

    The TrainingRuntimes of a TrainJob are looked for in all files. What is no job, such as the ConfigMap beside one, is
    passed over in a file that has a job or a runtime; a file that has neither is refused.
    """
    found = {name: list(documents(text, name)) for name, text in files.items()}
    runtimes = Runtimes(document for those in found.values() for document in those if is_runtime(document))
    for name, those in found.items():
        results = [result for document in those if (result := _convert(document, runtimes, queue)) is not None]
        if not results and not any(map(is_runtime, those)):
            results = [_nothing(name, those)]
        yield from results


def _nothing(name: str, those: Iterable[Document]) -> Refused:
    kinds = ", ".join(dict.fromkeys(document.kind or "something without a kind" for document in those))
    message = f"holds no training job, but {kinds}" if kinds else "is empty"
    return Refused(source=name, error=SpecError([Problem("kind", message, f"one of {', '.join(KINDS)}")]))


def _convert(document: Document, runtimes: Runtimes, queue: str) -> Converted | Refused | None:
    value, source = document.value, document.source
    if isinstance(value, SpecError):
        return Refused(source=source, error=value)
    versions = _VERSIONS.get(document.kind)
    if versions is None or (document.kind == "Job" and document.api == "batch/v1"):
        return None
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
    if kind == "TrainJob":
        job = trainer.convert(view, runtimes)
    elif kind == "Job":
        job = volcano.convert(view)
    else:
        job = _KUBEFLOW[kind](view)
    spec = assemble(job, account, queue=queue)
    account.close()
    return spec


def _check(spec: dict[str, Any]) -> None:
    """That the spec is valid and can be rendered: else the manifest asked for something that cannot be."""
    job = training_job(spec, source="the TrainingJob")
    job_manifest(job, name=job_name(job.name, "run"), run_id="run", step="convert", workers=job.workers.replicas.min)
