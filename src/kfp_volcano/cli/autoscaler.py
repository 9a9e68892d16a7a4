# SPDX-License-Identifier: Apache-2.0
"""The commands `kfp-volcano autoscaler …`: each in a module of its own."""

from __future__ import annotations

import click

from kfp_volcano.cli.autoscaler_run import run
from kfp_volcano.cli.decisions import ab_report, explain, replay
from kfp_volcano.cli.policies import policies

__all__ = ["autoscaler"]


@click.group()
def autoscaler() -> None:
    """Size the elastic trainings of queues, and tell why they have the size they have."""


autoscaler.add_command(run)
autoscaler.add_command(policies)
autoscaler.add_command(explain)
autoscaler.add_command(replay)
autoscaler.add_command(ab_report)
