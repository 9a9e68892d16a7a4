# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a Scenario is told all at once, each with its place."""

from __future__ import annotations

import contextlib
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.scenario_validation import scenario

GOOD = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "Scenario",
    "metadata": {"name": "rush-hour"},
    "spec": {
        "until": "12h",
        "cluster": {"nodes": [{"count": 2, "gpus": 8, "class": "a100"}], "failures": {"mtbf": "720h"}},
        "queues": {"plugin": "capacity", "queues": [{"name": "research", "deserved": {"gpu": 8}}]},
        "loads": [
            {
                "name": "day",
                "arrivals": {"poisson": {"perHour": 12}},
                "jobs": [{"name": "r", "gpus": [4], "duration": {"fixed": "1h"}, "queue": "research"}],
            }
        ],
        "jobs": [{"name": "big", "gpus": 16, "duration": "2h", "least": 8, "scaling": {"serial": 0.02}}],
    },
}


def changed(path, value):
    found = copy.deepcopy(GOOD)
    part = found
    for key in path[:-1]:
        part = part[key]
    if value is None:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return found


def test_a_good_one_is_built_with_its_defaults():
    """Types, and what was not written."""
    spec = scenario(GOOD)
    assert (spec.name, spec.until_s, spec.interval_s, spec.seed) == ("rush-hour", 43200.0, 60.0, 0)
    assert spec.queues.queues[0].name == "research"
    assert spec.loads[0].jobs[0].duration.fixed_s == 3600.0
    assert (spec.jobs[0].least, spec.jobs[0].most, spec.jobs[0].scaling.serial) == (8, None, 0.02)


OUTAGE = {"node": "node-1", "at": 0, "until": 9}
BAD = [
    (("spec", "cluster"), None, "spec.cluster", "is missing"),
    (("spec", "loads", 0, "arrivals"), {}, "spec.loads[0].arrivals", "says nothing"),
    (
        ("spec", "loads", 0, "arrivals"),
        {"poisson": {"perHour": 1}, "at": ["1h"]},
        "spec.loads[0].arrivals",
        "has poisson and at",
    ),
    (("spec", "loads", 0, "arrivals"), {"poisson": {"perHour": 1e6}}, "spec.loads[0].arrivals", "jobs come"),
    (
        ("spec", "loads", 0, "arrivals"),
        {"bursts": {"every": 0, "jobs": 1}},
        "spec.loads[0].arrivals.bursts.every",
        "no",
    ),
    (
        ("spec", "loads", 0, "jobs", 0, "duration"),
        {"fixed": 0},
        "spec.loads[0].jobs[0].duration.fixed",
        "nothing to do",
    ),
    (("spec", "loads", 0, "jobs", 0, "gpus"), [4, 99], "spec.loads[0].jobs[0].gpus[1]", "99 GPUs are more"),
    (("spec", "loads", 0, "jobs", 0, "queue"), "resarch", "spec.loads[0].jobs[0].queue", "there is no queue resarch"),
    (
        ("spec", "loads", 0, "jobs", 0, "classes"),
        ["t4"],
        "spec.loads[0].jobs[0].classes[0]",
        "no node has GPUs of class",
    ),
    (("spec", "jobs", 0, "least"), 17, "spec.jobs[0].least", "17 is more than gpus"),
    (("spec", "jobs", 0, "most"), 8, "spec.jobs[0].most", "8 is less than gpus"),
    (
        ("spec", "jobs", 0, "gpusPerWorker"),
        3,
        "spec.jobs[0].gpusPerWorker",
        "3 does not divide gpus and least and most",
    ),
    (("spec", "jobs", 0, "duration"), "soon", "spec.jobs[0].duration", "is not a valid duration"),
    (
        ("spec", "jobs", 0, "scaling"),
        {"points": [{"gpus": 2, "speed": 1}, {"gpus": 2, "speed": 2}]},
        "spec.jobs[0].scaling.points[1].gpus",
        "is not more than before",
    ),
    (("spec", "queues", "queues", 0, "weight"), 3, "spec.queues.queues[0].weight", "plugin capacity"),
    (("spec", "queues", "queues", 0, "nmae"), "x", "spec.queues.queues[0].nmae", "unknown key"),
    (
        ("spec", "cluster", "outages"),
        [{**OUTAGE, "node": "node-2"}],
        "spec.cluster.outages[0].node",
        "no node-2",
    ),
    (
        ("spec", "cluster", "outages"),
        [{**OUTAGE, "at": 9}],
        "spec.cluster.outages[0].until",
        "not after",
    ),
    (("spec", "cluster", "failures", "mtbf"), 0, "spec.cluster.failures.mtbf", "too short"),
    (("spec", "trace"), {"file": "x", "since": "2h", "until": "1h"}, "spec.trace.until", "not after since"),
    (("spec", "trace"), {"file": "x", "queue": "nowhere"}, "spec.trace.queue", "no queue nowhere"),
]


@pytest.mark.parametrize(("path", "value", "place", "what"), BAD)
def test_what_is_wrong_has_its_place_and_its_remedy(path, value, place, what):
    """And nothing else is told of it."""
    with pytest.raises(SpecError) as caught:
        scenario(changed(path, value))
    (problem,) = caught.value.problems
    assert problem.path == place
    assert what in problem.message


def test_a_name_is_given_once():
    """Loads and stated jobs are told apart by it."""
    twice = changed(("spec", "jobs"), [GOOD["spec"]["jobs"][0]] * 2)
    with pytest.raises(SpecError, match=r"jobs\[1\].name: big is the name of jobs\[0\] too"):
        scenario(twice)


def test_a_scenario_of_nothing_is_refused():
    """There has to be something to replay."""
    with pytest.raises(SpecError, match="has nothing to replay"):
        scenario({**GOOD, "spec": {"cluster": GOOD["spec"]["cluster"]}})


def test_all_problems_are_told_at_once():
    """Of structure, of meaning and of the queues."""
    bad = changed(("spec", "jobs", 0, "gpus"), "many")
    bad["spec"]["loads"][0]["jobs"][0]["queue"] = "nowhere"
    bad["spec"]["until"] = "later"
    with pytest.raises(SpecError) as caught:
        scenario(bad)
    assert {problem.path for problem in caught.value.problems} == {
        "spec.jobs[0].gpus",
        "spec.loads[0].jobs[0].queue",
        "spec.until",
    }


PLACES = []


def _places(value, path=()):
    PLACES.append(path)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        _places(part, (*path, key))


_places(GOOD)
JUNK = st.sampled_from([None, [], {}, "", "x", -1, 0, 1.5, True, [[]], [{}], {"a": 1}, ["1h"], 10**30, "1h", "node-0"])


@given(st.lists(st.tuples(st.sampled_from(PLACES[1:]), JUNK), min_size=1, max_size=3))
def test_no_document_makes_it_crash(changes):
    """It is built, or refused in words."""
    found = copy.deepcopy(GOOD)
    for path, value in changes:
        part = found
        try:
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    with contextlib.suppress(SpecError):
        scenario(found)
