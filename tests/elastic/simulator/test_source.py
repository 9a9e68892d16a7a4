# SPDX-License-Identifier: Apache-2.0
"""Scenario documents: what is drawn of them, and that equal seeds draw the same."""

from __future__ import annotations

import json
from statistics import median

import pytest
import yaml

from kfp_volcano.elastic.simulator.source import draws, read_scenario
from kfp_volcano.errors import SpecError

NODES = [{"count": 2, "gpus": 8, "class": "a100", "zone": "r1"}, {"count": 1, "gpus": 4}]


def document(**spec):
    return {"apiVersion": "kfp-volcano/v1", "kind": "Scenario", "metadata": {"name": "rush"}, "spec": spec}


def read(tmp_path, *, seed=None, **spec):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(document(**{"cluster": {"nodes": NODES}, **spec})))
    return read_scenario(path, seed=seed)


def load(arrivals, **kind):
    job = {"name": "resnet", "gpus": [1, 2, 4], "duration": {"lognormal": {"median": "1h", "sigma": 0.5}}, **kind}
    return {"name": "day", "arrivals": arrivals, "jobs": [job]}


def test_equal_seeds_draw_the_same_and_others_do_not(tmp_path):
    """All that is drawn hangs on the seed."""
    loads = [load({"poisson": {"perHour": 20}})]
    first, again, other = (read(tmp_path, loads=loads, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.jobs != other.jobs


def test_only_a_document_with_loads_draws_anew(tmp_path):
    """Stated jobs are the same whatever the seed, as a trace is: their replications have to come from elsewhere."""
    read(tmp_path, loads=[load({"poisson": {"perHour": 20}})])
    assert draws(tmp_path / "scenario.yaml")
    stated = {"name": "one", "at": "1h", "gpus": 2, "duration": "1h"}
    first = read(tmp_path, jobs=[stated], seed=1)
    assert first == read(tmp_path, jobs=[stated], seed=2)
    assert not draws(tmp_path / "scenario.yaml")
    assert not draws(tmp_path / "trace.csv")


def test_a_load_draws_the_same_whatever_else_there_is(tmp_path):
    """Each draws for itself."""
    alone = read(tmp_path, loads=[load({"poisson": {"perHour": 20}})])
    both = read(tmp_path, loads=[load({"poisson": {"perHour": 20}}), {**load({"at": ["1h"]}), "name": "other"}])
    assert [job for job in both.jobs if job.name.startswith("day")] == list(alone.jobs)
    assert len(both.jobs) > len(alone.jobs)


@pytest.mark.parametrize("arrivals", [{"poisson": {"perHour": 40}}, {"diurnal": {"perHour": 40, "swing": 1.0}}])
def test_as_many_come_as_is_said_on_average(tmp_path, arrivals):
    """Within what chance allows: five standard deviations."""
    jobs = read(tmp_path, loads=[load(arrivals)], until="10d").jobs
    assert abs(len(jobs) - 9600) < 5 * 9600**0.5
    assert 3200 < median(job.work.duration_s for job in jobs) < 4000
    assert {job.workers * job.gpus_per_worker for job in jobs} == {1, 2, 4}


def test_days_have_their_peaks(tmp_path):
    """More come around the peak than half a day later."""
    jobs = read(tmp_path, loads=[load({"diurnal": {"perHour": 40, "swing": 1.0, "peak": "12h"}})], until="10d").jobs
    hours = [job.submitted_at / 3600 % 24 for job in jobs]
    assert sum(8 < hour < 16 for hour in hours) > 5 * sum(hour < 4 or hour > 20 for hour in hours)


def test_bursts_come_all_at_once(tmp_path):
    """From the beginning on, again and again."""
    jobs = read(tmp_path, loads=[load({"bursts": {"every": "6h", "jobs": 5, "within": "1m"}})]).jobs
    assert len(jobs) == 20
    assert all(job.submitted_at % 21600 <= 60 for job in jobs)


def test_given_times_are_kept_and_a_limit_takes_the_first(tmp_path):
    """In the order of time, whatever they were written in."""
    jobs = read(tmp_path, loads=[{**load({"at": ["30m", "0s", "10m", "90d"]}), "most": 2}]).jobs
    assert [job.submitted_at for job in jobs] == [0, 600]


def test_stated_jobs_are_as_they_are_stated(tmp_path):
    """Sizes in GPUs become workers."""
    stated = {"name": "big", "at": 1.5, "gpus": 8, "gpusPerWorker": 2, "duration": "1h", "least": 4, "most": 16}
    (job,) = read(tmp_path, jobs=[stated]).jobs
    assert (job.submitted_at, job.workers, job.min_workers, job.max_workers, job.gpus_per_worker) == (1.5, 4, 2, 8, 2)
    assert job.work.alone_s(8) == 3600


def test_nodes_fail_as_often_and_as_long_as_is_said(tmp_path):
    """One after another on each node, drawn for each by itself; stated ones besides."""
    cluster = {"nodes": [{"count": 50, "gpus": 8}], "failures": {"mtbf": "24h", "mttr": "1h"}}
    cluster["outages"] = [{"node": "node-3", "at": 0, "until": 5}]
    outages = read(tmp_path, cluster=cluster, jobs=[{"name": "a", "gpus": 1, "duration": 1}], until="100d").outages
    assert outages[0].node == "node-3"
    assert abs(len(outages) - 5000 * 24 / 25) < 5 * 4800**0.5
    mean = sum(outage.until - outage.at for outage in outages) / len(outages)
    assert 3200 < mean < 4000


def test_the_whole_tree_of_queues_is_taken(tmp_path):
    """Parents, shares and limits in GPUs."""
    tree = {
        "plugin": "capacity",
        "queues": [
            {"name": "science", "deserved": {"gpu": 16}, "queues": [{"name": "vision", "deserved": {"gpu": 4}}]},
            {"name": "ops", "capability": {"gpu": 8}, "reclaimable": False, "priority": 3},
        ],
    }
    scenario = read(tmp_path, queues=tree, jobs=[{"name": "a", "gpus": 1, "duration": 1, "queue": "vision"}])
    found = {queue.name: queue for queue in scenario.queues}
    assert set(found) == {"science", "vision", "ops", "default"}
    assert (found["vision"].parent, found["vision"].deserved) == ("science", 4)
    assert (found["ops"].capability, found["ops"].reclaimable, found["ops"].priority) == (8, False, 3)


def test_a_trace_s_jobs_are_taken_at_the_load_that_is_said(tmp_path):
    """Together with what else there is."""
    (tmp_path / "t.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,60,4\nb,100,60,4\nc,200,60,4\n")
    trace = {"file": "t.csv", "load": 2, "only": ["a", "b"], "elastic": {"least": 0.5, "most": 1}, "resize": "7s"}
    scenario = read(tmp_path, trace=trace, jobs=[{"name": "x", "gpus": 1, "duration": 1, "at": 20}])
    assert [(job.name, job.submitted_at) for job in scenario.jobs] == [("a", 0), ("x", 20), ("b", 50)]
    assert (scenario.jobs[0].min_workers, scenario.jobs[0].resize_s) == (2, 7.0)
    with pytest.raises(SpecError, match="z: is no job of the trace"):
        read(tmp_path, trace={**trace, "only": ["a", "z"]})
    with pytest.raises(SpecError, match="two jobs are called a"):
        read(tmp_path, trace=trace, jobs=[{"name": "a", "gpus": 1, "duration": 1}])


def test_json_in_a_yaml_file_and_line_ends_do_not_matter(tmp_path):
    """As in every other document."""
    text = json.dumps(document(cluster={"nodes": NODES}, jobs=[{"name": "a", "gpus": 1, "duration": 1}]), indent=1)
    (tmp_path / "s.yaml").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_scenario(tmp_path / "s.yaml").jobs[0].name == "a"
    (tmp_path / "s.json").write_text(text)
    assert read_scenario(tmp_path / "s.json").jobs[0].name == "a"


def test_what_nothing_comes_of_is_refused(tmp_path):
    """Nothing to replay is no scenario."""
    with pytest.raises(SpecError, match="no job comes of it"):
        read(tmp_path, loads=[load({"at": ["2h"]})], until="1h")
