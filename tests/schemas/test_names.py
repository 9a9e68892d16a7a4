# SPDX-License-Identifier: Apache-2.0
"""Names derived from a run fit where Kubernetes puts them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.names import COORDINATOR, RESERVED_TASKS, job_name, pod_name, run_label

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@given(st.text(), st.text(), st.sampled_from(RESERVED_TASKS), st.integers(0, 9999))
def test_every_pod_name_is_a_dns_label(name: str, run_id: str, task: str, index: int) -> None:
    """Whatever the spec is called, `<job>-<task>-<index>` is a valid host name of at most 63 characters."""
    pod = pod_name(job_name(name, run_id), task, index)
    assert DNS_LABEL.fullmatch(pod)
    assert len(pod) <= 63


@given(st.text(), st.text(), st.text())
def test_a_job_name_is_a_function_of_spec_and_run(name: str, one: str, other: str) -> None:
    """A retried step finds its Job; another run never does."""
    assert job_name(name, one) == job_name(name, one)
    assert (job_name(name, one) == job_name(name, other)) == (run_label(one)[:8] == run_label(other)[:8])


def test_the_longest_reserved_task_decides_how_long_a_name_may_be() -> None:
    """The room left for task and index is that of the longest reserved task."""
    assert max(RESERVED_TASKS, key=len) == COORDINATOR
