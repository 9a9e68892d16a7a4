"""TrainingJobs as users write them: the repository's examples, changed in any field that the published schema has."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from kfp_volcano.schemas.structure import load_schema
from strategies.edits import Edit, edits

__all__ = ["SCHEMA", "examples", "training_jobs"]

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
