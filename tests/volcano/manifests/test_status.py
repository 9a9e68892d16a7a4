# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kfp_volcano.volcano.manifests.status import JobState, job_state

# JobPhase in Volcano's staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go; the CRD enumerates the same.
PHASES = {
    "Pending": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Restarting": JobState.RESTARTING,
    "Completing": JobState.ENDING,
    "Terminating": JobState.ENDING,
    "Aborting": JobState.ENDING,
    "Aborted": JobState.SUSPENDED,
    "Completed": JobState.SUCCEEDED,
    "Terminated": JobState.FAILED,
    "Failed": JobState.FAILED,
}


@pytest.mark.parametrize(("phase", "state"), PHASES.items())
def test_every_phase_has_a_state(phase, state):
    """Each phase Volcano knows means one thing to a follower."""
    assert job_state({"status": {"state": {"phase": phase}}}) is state


def test_the_phases_are_those_of_the_crd(job_crd):
    """No phase of the CustomResourceDefinition is left out, and none is made up."""
    status = job_crd["properties"]["status"]["properties"]
    assert set(status["state"]["properties"]["phase"]["enum"]) == PHASES.keys()


@pytest.mark.parametrize("job", [{}, {"status": None}, {"status": {}}, {"status": {"state": {}}}])
def test_a_job_without_a_status_is_pending(job):
    """Before the controller has seen a Job there is nothing in its status."""
    assert job_state(job) is JobState.PENDING


def test_a_phase_of_a_newer_volcano_is_unknown_and_not_final():
    """A follower goes on when it meets a phase it does not know."""
    state = job_state({"status": {"state": {"phase": "Hibernating"}}})
    assert state is JobState.UNKNOWN
    assert not state.final


def test_only_an_end_is_final():
    """Succeeded and failed Jobs never run again; all others may."""
    assert {state for state in JobState if state.final} == {JobState.SUCCEEDED, JobState.FAILED}
