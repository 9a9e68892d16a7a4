# SPDX-License-Identifier: Apache-2.0
"""TrainingJobs as users write them: the repository's examples, changed in any field that the published schemas have.

And the Volcano Jobs that are rendered from them, also from those that ought to be refused.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from kfp_volcano.schemas import names
from kfp_volcano.schemas.structure import load_schema
from kfp_volcano.schemas.training_job import TrainingJob
from kfp_volcano.schemas.wire import build
from kfp_volcano.volcano.manifests.job import manifests
from strategies.edits import Edit, Fields, edits, lots
from strategies.json_schema import Schema, places

__all__ = ["FIELDS", "SCHEMA", "WHOLE", "examples", "forced", "rendered", "training_jobs"]

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
_GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@cache
def examples() -> list[dict[str, Any]]:
    """Good TrainingJobs, of each framework and strategy there is."""
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(_GOLDEN.glob("*.spec.yaml"))]


def _fields() -> Fields:
    """The fields of a TrainingJob, and for every two of them one of those that are in Kubernetes' own words."""
    own = {place.field for example in examples() for place in places(SCHEMA, example)} - {()}
    whole = {place.field for place in places(WHOLE, {})} | {place.field for place in places(WHOLE, examples()[0])}
    return Fields(WHOLE, [sorted(own), sorted(own), sorted(whole - own - {()})])


FIELDS = _fields()


@st.composite
def training_jobs(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit]]:
    """A good TrainingJob, and changes to it that may leave it good or not."""
    example = draw(lots()).choice(examples())
    return example, draw(edits(FIELDS, example))


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
