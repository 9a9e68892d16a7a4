# SPDX-License-Identifier: Apache-2.0
"""The checkpoint volume in the steps that read it: which claim, and that they mount it."""

from collections.abc import Mapping
from typing import Any, Optional, Union

from kfp import dsl, kubernetes
from kfp.dsl import pipeline_channel

from kfp_volcano.schemas.names import MOUNT_PATH

__all__ = ["Claim", "claim_of", "mount"]

Claim = Union[str, pipeline_channel.PipelineChannel]
"""The name of a PersistentVolumeClaim: a constant, a pipeline parameter, or an earlier step's output."""


def claim_of(spec: Any, said: Optional[Claim]) -> Claim:
    """The claim that the steps of a run mount; empty for none.

    What is `said` beside the spec counts. Without it they mount the spec's own claim where they certainly can, which is
    where the spec names no namespace: then the Job is in theirs.
    """
    if said is not None:
        return said
    if not isinstance(spec, Mapping) or "namespace" in (spec.get("metadata") or {}):
        return ""
    checkpoint = spec.get("spec", {}).get("checkpoint")
    claim = checkpoint.get("volume", "") if isinstance(checkpoint, Mapping) else ""
    if isinstance(claim, str):
        # A name put together from channels is no name, nor a channel: KFP could not mount it.
        return "" if pipeline_channel.extract_pipeline_channels_from_any(claim) else claim
    return claim if isinstance(claim, pipeline_channel.PipelineParameterChannel) else ""


def mount(task: dsl.PipelineTask, claim: Claim) -> dsl.PipelineTask:
    """Mount a claim in a step, where the workers mount it."""
    return kubernetes.mount_pvc(task, claim, MOUNT_PATH)
