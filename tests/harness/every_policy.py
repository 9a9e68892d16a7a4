# SPDX-License-Identifier: Apache-2.0
"""Every policy there is, for laws that hold of them all."""

from __future__ import annotations

from kfp_volcano.elastic.policies.adaptive import Adaptive
from kfp_volcano.elastic.policies.goodput.policy import Goodput
from kfp_volcano.elastic.policies.hpa.policy import Hpa
from kfp_volcano.elastic.policies.settings import Down, ThresholdSettings, Up
from kfp_volcano.elastic.policies.threshold import Threshold

__all__ = ["POLICIES"]

POLICIES = {
    "threshold": Threshold(settings=ThresholdSettings(up=Up(idle_share=0.1))),
    "threshold-each-way": Threshold(
        settings=ThresholdSettings(up=Up(idle_share=0.3, step=1, pending_tasks=2), down=Down(used_share=0.9, step=2))
    ),
    "adaptive": Adaptive(),
    "hpa": Hpa(),
    "goodput": Goodput(),
}
