# SPDX-License-Identifier: Apache-2.0
"""Advice on requests follows the peak of what was used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.memory import JobMemory
from kfp_volcano.elastic.policies.requests import RequestSettings, advised, peaks
from kfp_volcano.elastic.policies.snapshot import ElasticJob, Sample, WorkerPod

NOW = 10_000.0
GIB = 2**30 * 1000
SETTINGS = RequestSettings()


def job(*used, cpu=8000, memory=32 * GIB):
    pods = tuple(
        WorkerPod(
            name=f"digits-core-{at}",
            phase="Running",
            requests={"cpu": cpu, "memory": memory},
            samples={resource: Sample(NOW, value) for resource, value in each.items()},
        )
        for at, each in enumerate(used or ({},))
    )
    return ElasticJob(
        key="ml/digits",
        workers=len(pods),
        running=len(pods),
        min_workers=1,
        max_workers=8,
        sizes=(1, 8),
        gpus_per_worker=1,
        nodes=("node-0",) * len(pods),
        pods=pods,
    )


def advice(of, memory):
    return {each.resource: (each.advised, each.explanation) for each in advised(of, memory, SETTINGS, NOW)}


def test_the_peak_of_any_worker_counts():
    """With what was measured before, and only for what is measured."""
    assert peaks(job({"cpu": 1.0}, {"cpu": 3.0}), {"cpu": 2000, "memory": 5}) == {"cpu": 3000, "memory": 5}


def test_what_is_measured_and_what_is_requested_are_told_in_the_same_unit():
    """Workers that use what they request are told nothing: cores and bytes are measured, thousandths are requested."""
    used = job({"cpu": 7.0, "memory": 28.0 * 2**30})
    assert peaks(used, {}) == {"cpu": 7000, "memory": 28 * GIB}
    assert advice(used, JobMemory(peaks=peaks(used, {}), measured_since=NOW - 600)) == {}


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (
            {"cpu": 3000, "memory": 12 * GIB},
            {
                "cpu": (3500, "workers of digits request 8.0 CPUs and used at most 3.0 CPUs: 3.5 CPUs would do"),
                "memory": (
                    14132 * 2**20 * 1000,
                    "workers of digits request 32.0 GiB and used at most 12.0 GiB: 13.8 GiB would do",
                ),
            },
        ),
        ({"cpu": 6800, "memory": 28 * GIB}, {}),
        (
            {"cpu": 8000},
            {"cpu": (9200, "workers of digits request 8.0 CPUs and used at most 8.0 CPUs: 9.2 CPUs would do")},
        ),
        ({}, {}),
    ],
)
def test_the_advice_is_the_peak_and_a_margin(peak, expected):
    """Up as well as down; nothing where it is about right."""
    assert advice(job(), JobMemory(peaks=peak, measured_since=NOW - 600)) == expected


@pytest.mark.parametrize("since", [None, NOW - 599])
def test_too_short_a_time_says_nothing(since):
    """A training's first minutes are not like the rest."""
    assert advice(job(), JobMemory(peaks={"cpu": 100}, measured_since=since)) == {}


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_who_follows_the_advice_gets_no_other(requested, peak):
    """The same use calls for no further change."""
    memory = JobMemory(peaks={"cpu": peak}, measured_since=NOW - 600)
    for each in advised(job(cpu=requested), memory, SETTINGS, NOW):
        assert each.advised >= peak
        assert "cpu" not in advice(job(cpu=each.advised), memory)
