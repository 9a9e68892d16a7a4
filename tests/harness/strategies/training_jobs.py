"""TrainingJobs as users write them: the repository's examples, changed in any field that the published schema has.

And the Volcano Jobs that are rendered from them, also from those that ought to be refused.
"""

from __future__ import annotations

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
from strategies.edits import Edit, edits

__all__ = ["SCHEMA", "examples", "forced", "rendered", "training_jobs"]

SCHEMA = load_schema("training-job.v1")
_GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@cache
def examples() -> list[dict[str, Any]]:
    """Good TrainingJobs, of each framework and strategy there is."""
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(_GOLDEN.glob("*.spec.yaml"))]


@st.composite
def training_jobs(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit]]:
    """A good TrainingJob, and changes to it that may leave it good or not."""
    example = draw(st.sampled_from(examples()))
    return example, draw(edits(SCHEMA, example))


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
