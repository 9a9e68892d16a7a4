"""TrainingJobs as users write them: the repository's examples, changed in any field that the published schemas have.

And the Volcano Jobs that are rendered from them, also from those that ought to be refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import yaml
from hypothesis import strategies as st

from kfp_volcano.schemas import names
from kfp_volcano.schemas.structure import load_schema
from kfp_volcano.schemas.training_job import TrainingJob
from kfp_volcano.schemas.wire import build
from kfp_volcano.volcano.manifests.job import manifests
from strategies.edits import Edit, edits
from strategies.json_schema import Path, Schema

__all__ = ["SCHEMA", "WHOLE", "examples", "forced", "rendered", "training_jobs"]

SCHEMA = load_schema("training-job.v1")


def _whole() -> Schema:
    """The schema of TrainingJobs with that of pod templates in the places that are in Kubernetes' own words."""
    whole, template = copy.deepcopy(dict(SCHEMA)), load_schema("pod-template.v1")["properties"]
    spec = template["spec"]["properties"]
    container = spec["containers"]["items"]["properties"]
    definitions = whole["$defs"]
    pod, placement = definitions["pod"]["properties"], definitions["placement"]["properties"]
    pod["securityContext"] |= {"properties": spec["securityContext"]["properties"]}
    pod["containerSecurityContext"] |= {"properties": container["securityContext"]["properties"]}
    placement["affinity"] |= {"properties": spec["affinity"]["properties"]}
    definitions["podPatch"] |= {"properties": {**template, "spec": {"type": "object", "properties": spec}}}
    return whole


WHOLE = _whole()
_GOLDEN = FilePath(__file__).resolve().parents[2] / "golden"


@cache
def examples() -> list[dict[str, Any]]:
    """Good TrainingJobs, of each framework and strategy there is."""
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(_GOLDEN.glob("*.spec.yaml"))]


@st.composite
def training_jobs(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit]]:
    """A good TrainingJob, and changes to it that may leave it good or not."""
    example = draw(st.sampled_from(examples()))
    return example, draw(edits(WHOLE, example, below=draw(st.sampled_from(_parts(example)))))


def _parts(example: Mapping[str, Any]) -> list[Path]:
    """Parts of a TrainingJob to change: mostly all of it, and each that is in Kubernetes' own words, which are many."""
    levels: list[Path] = [("spec",), *(("spec", "roles", role) for role in example["spec"]["roles"])]
    own = [(*level, *key) for level in levels for key in _KUBERNETES]
    return [*own, *[()] * (2 * len(own))]


_KUBERNETES: tuple[Path, ...] = (
    *(("podPatch",), ("podPatch", "spec", "containers"), ("podPatch", "spec", "volumes")),
    *(("placement", "affinity"), ("pod", "securityContext"), ("pod", "containerSecurityContext")),
)


def rendered(job: TrainingJob) -> list[dict[str, Any]]:
    """The Job at its largest size and what comes with it, as the submitting step renders them."""
    name = names.job_name(job.name, "run")
    return manifests(job, name=name, run_id="run", step="submit", workers=job.workers.replicas.max)


def forced(spec: Any) -> list[dict[str, Any]] | None:
    """The objects of a spec that was never checked; None where no Job can be made of it at all."""
    try:
        return rendered(build(spec))
    except Exception:  # noqa: BLE001 # a spec of any shape raises anything
        return None
