# SPDX-License-Identifier: Apache-2.0
"""A step of a pipeline that follows a Job: it has the Job's Lease, and carries out what is asked for."""

from __future__ import annotations

from kfp_volcano.elastic.autoscaler.contracts import open_request
from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.errors import ClusterError, NotFoundError, ResizeError
from kfp_volcano.volcano.manifests.status import job_state
from storms.program import Program

__all__ = ["follow"]

LOOK_S = 8.0


def follow(program: Program, namespace: str, name: str, run: str) -> None:
    """Until the Job has ended, or the process is killed."""
    holder = f"train:{run}"
    lease = JobLease(program.cluster, namespace, name, holder=holder, clock=program.clock)
    while True:
        try:
            job = program.cluster.get("Job", name, namespace)
            if job_state(job).final:
                lease.release()
                return
            if lease.renew_if_due() and open_request(job, program.clock()) is not None:
                execute(program.cluster, namespace, name, holder=holder, clock=program.clock)
        except NotFoundError:
            return
        except (ClusterError, ResizeError) as error:
            program.storm.say(f"{program.name}: {error}")
        program.storm.turns.sleep(LOOK_S)
