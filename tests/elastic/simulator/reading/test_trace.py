# SPDX-License-Identifier: Apache-2.0
"""Traces in every format: what is read of good lines, and that every bad one is named."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.reading.assumed import Assumed
from kfp_volcano.elastic.simulator.reading.shape import parse_nodes
from kfp_volcano.elastic.simulator.reading.trace import FORMATS, read_trace
from kfp_volcano.errors import SpecError

PLAIN = "job_id,submission_time,duration,num_gpu\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def read(tmp_path, text, name="trace.csv", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path, **options)


def brief(scenario):
    """What a trace tells of each job."""
    return [
        (job.name, job.submitted_at, job.work.duration_s, job.workers * job.gpus_per_worker, job.team)
        for job in scenario.jobs
    ]


GOOD = [
    (PLAIN + "a,100,60,1\nb,160,30.5,8\n", [("a", 0, 60, 1, ""), ("b", 60, 30.5, 8, "")]),
    (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,vc1\n", [("philly-2", 0, 66, 1, "vc1")]),
    (
        HELIOS
        + "7,u,vcA,8,64,1,COMPLETED,2020-04-01 00:00:05,2020-04-01 00:00:09,2020-04-01 00:01:09,60,4\n"
        + "8,u,vcA,0,64,1,COMPLETED,2020-04-01 00:00:06,2020-04-01 00:00:09,2020-04-01 00:01:09,60,4\n"
        + "9,u,vcB,1,8,1,CANCELLED,2020-04-01 00:00:07,None,2020-04-01 00:01:09,None,4\n",
        [("7", 0, 60, 8, "vcA")],
    ),
    (
        (
            "j1,worker,4,Terminated,100.0,400.0,600,29,50,V100\nj1,ps,1,Terminated,90.0,400.0,600,29,,\n"
            "j2,worker,1,Running,100.0,,600,29,100,T4\n"
        ),
        [("j1", 0, 310, 2, "")],
    ),
    (
        PODS + "p0,12000,16384,1,500,V100M16|T4,LS,Succeeded,10,70,20\np1,12000,16384,0,0,,BE,Succeeded,11,70,20\n",
        [("p0", 0, 50, 1, "LS")],
    ),
]


@pytest.mark.parametrize(("text", "jobs"), GOOD, ids=["elasticflow", "philly", "helios", "v2020", "v2023"])
def test_each_format_is_recognised_and_read(tmp_path, text, jobs):
    """From its header, or from its first line where it has none; times count from the first submission."""
    assert brief(read(tmp_path, text)) == jobs


def test_what_is_left_out_is_said(tmp_path):
    """Jobs that a trace has for its authors' sake do not vanish without a word."""
    notes = " ".join(read(tmp_path, GOOD[2][0]).notes)
    assert "1 jobs without GPUs" in notes
    assert "1 jobs that never ran" in notes


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace(",", ";").encode(),
        lambda text: text.replace(",", "\t").encode(),
        lambda text: ("\n" + text.replace("\n", "\n\n")).encode(),
        lambda text: text.replace("a,", '"a",').encode(),
        lambda text: text.upper().replace("A,", "a,").replace("B,", "b,").encode(),
        lambda text: text.replace("\n", "  \n").replace(",", " , ").encode(),
    ],
    ids=["bom", "crlf", "utf-16", "semicolons", "tabs", "blank lines", "quotes", "capitals", "spaces"],
)
def test_however_it_is_written_it_says_the_same(tmp_path, change):
    """Encodings, line ends, delimiters and quoting are no part of what a trace says."""
    assert brief(read(tmp_path, change(GOOD[0][0]))) == GOOD[0][1]


@pytest.mark.parametrize(
    ("line", "place", "what"),
    [
        ("b,-5,60,1", "line 3, submission_time", "'-5' is too small"),
        ("b,soon,60,1", "line 3, submission_time", "'soon' is no number"),
        ("b,2020-13-45 00:00:00,60,1", "line 3, submission_time", "is no time"),
        ("b,1e300,60,1", "line 3, submission_time", "too large"),
        ("b,5,nan,1", "line 3, duration", "'nan' is no number"),
        ("b,5,0,1", "line 3, duration", "is 0"),
        ("b,5,,1", "line 3, duration", "is empty"),
        ("b,5,60,0", "line 3, num_gpu", "'0' is too small"),
        ("b,5,60,2.5", "line 3, num_gpu", "'2.5' is not whole"),
        ("b,5,60,9999999999", "line 3, num_gpu", "too large"),
        ("b,5,60", "line 3", "has 3 fields"),
        ("b,5,60,1,7", "line 3", "has 5 fields"),
        (",5,60,1", "line 3, job_id", "is empty"),
        ("a,5,60,1", "line 3, job_id", "a is the job of line 2 too"),
        ('"b,5,60,1', "line 3", "a quote that is never closed"),
        ('"b,5",60,1', "line 3", "has 3 fields"),
        ("b,1_0,60,1", "line 3, submission_time", "is no number"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, place, what):
    """By line and column, with what is wrong there, and what would be right."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, f"{PLAIN}a,1,60,1\n{line}\n")
    (problem,) = caught.value.problems
    assert problem.path == place
    assert what in problem.message
    assert problem.remedy


def test_all_bad_lines_are_told_at_once(tmp_path):
    """And those before and after them are looked at all the same."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, f"{PLAIN}a,x,60,1\nb,5,60,1\nc,5,y,0\nd,6\n")
    places = [problem.path for problem in caught.value.problems]
    assert places == ["line 2, submission_time", "line 4, duration", "line 4, num_gpu", "line 5"]


def test_of_very_many_bad_lines_each_is_named_all_the_same(tmp_path):
    """The first thousand problems one by one, of the others the lines."""
    lines = "".join(f"j{number},1,60,0\n" for number in range(5000))
    with pytest.raises(SpecError) as caught:
        read(tmp_path, PLAIN + lines)
    assert len(caught.value.problems) == 1001
    assert caught.value.problems[-1].path == "lines 1002-5001"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (PLAIN, "holds no job"),
        ("name,age\nx,4\n", "is the header of no format"),
        ("job_id,submission_time,duration\nx,4,5\n", "elasticflow has num_gpu besides"),
        (b"job_id,submission_time,duration,num_gpu\ncaf\xe9,1,2,3\nb,1,2,3\n\xff,1,2,3\n", "line 2: byte 4 (0xe9)"),
        ("{]", "is no JSON"),
        ("[1, {}]", "entry 1"),
        ("{}", "is no list of Kubernetes objects"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, what):
    """In words, whatever it is."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    assert what in str(caught.value)


def test_a_stated_format_tells_which_columns_are_missing(tmp_path):
    """Each of them."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "job_id,duration\nx,4\n", form="elasticflow")
    assert [problem.path for problem in caught.value.problems] == ["line 1, num_gpu", "line 1, submission_time"]


@given(data=st.binary(max_size=300), form=st.sampled_from((None, *FORMATS)))
def test_no_file_makes_it_crash(tmp_path_factory, data, form):
    """What cannot be read is refused, and nothing else."""
    path = tmp_path_factory.mktemp("any") / "trace.csv"
    path.write_bytes(data)
    with contextlib.suppress(SpecError):
        read_trace(path, form=form)


FIELD = st.one_of(st.integers(-5, 10**13).map(str), st.floats().map(str), st.text(max_size=5), st.just("None"))


@given(header=st.sampled_from([PLAIN, PHILLY, HELIOS, PODS]), rows=st.lists(st.lists(FIELD, min_size=11, max_size=12)))
def test_no_line_makes_it_crash(tmp_path_factory, header, rows):
    """Lines are read, or complained of."""
    count = header.count(",") + 1
    path = tmp_path_factory.mktemp("any") / "trace.csv"
    path.write_text(header + "".join(",".join(row[:count]) + "\n" for row in rows), encoding="utf-8")
    try:
        scenario = read_trace(path)
    except SpecError:
        return
    assert all(job.submitted_at >= 0 and job.workers > 0 and job.work.duration_s > 0 for job in scenario.jobs)


ENTRY = {
    "jobid": "application_1",
    "vc": "ee9e8c",
    "user": "u",
    "status": "Pass",
    "submitted_time": "2017-10-09 07:00:00",
    "attempts": [
        {
            "start_time": "2017-10-09 07:02:00",
            "end_time": "2017-10-09 07:03:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
        },
        {"start_time": "2017-10-09 07:05:00", "end_time": "2017-10-09 07:05:30", "detail": [{"gpus": ["a", "b"]}]},
    ],
}


def test_philly_s_log_is_read(tmp_path):
    """The GPUs of the last attempt, the time of all of them; what never ran is left out."""
    never = {**ENTRY, "jobid": "application_2", "attempts": []}
    unended = {**ENTRY, "jobid": "application_3", "attempts": [{"start_time": "2017-10-09 07:02:00", "end_time": None}]}
    scenario = read(tmp_path, json.dumps([ENTRY, never, unended]), name="cluster_job_log")
    assert brief(scenario) == [("application_1", 0, 90, 2, "ee9e8c")]
    assert "2 jobs that never ran" in scenario.notes[0]


def test_a_bad_entry_of_philly_s_log_is_named(tmp_path):
    """By its number, from one."""
    backwards = {**ENTRY, "attempts": [{"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 07:01:00"}]}
    with pytest.raises(SpecError) as caught:
        read(tmp_path, json.dumps([ENTRY, backwards, {**ENTRY, "jobid": "x", "submitted_time": "later"}]))
    places = [problem.path for problem in caught.value.problems]
    assert places == ["entry 2, jobid", "entry 2, attempts[0]", "entry 3, submitted_time"]


def test_packed_files_and_members_of_archives_are_read(tmp_path):
    """A name within an archive may be left out where there is but one."""
    text = GOOD[0][0].encode()
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))
    for name, members in (("one.tar.gz", ["./a.csv", "LICENSE"]), ("two.tar.gz", ["a.csv", "b.csv"])):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            for member in members:
                info = tarfile.TarInfo(member)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
    for path in ("t.csv.gz", "one.tar.gz", "two.tar.gz/b.csv"):
        assert brief(read_trace(tmp_path / path)) == GOOD[0][1]
    for path, what in (("two.tar.gz", "name one"), ("two.tar.gz/c.csv", "holds no c.csv"), ("gone.csv", "cannot be")):
        with pytest.raises(SpecError, match=what):
            read_trace(tmp_path / path)
    (tmp_path / "broken.tar.gz").write_bytes(gzip.compress(text)[:20])
    with pytest.raises(SpecError, match="cannot be unpacked"):
        read_trace(tmp_path / "broken.tar.gz")


def test_jobs_come_by_time_and_that_they_did_not_is_said(tmp_path):
    """A scenario's jobs are in the order of submission."""
    scenario = read(tmp_path, PLAIN + "late,200,60,1\nearly,100,60,1\n")
    assert [job.name for job in scenario.jobs] == ["early", "late"]
    assert "not in the order of submission" in scenario.notes[0]


def test_a_window_a_load_and_a_limit_choose_jobs(tmp_path):
    """From the window's beginning, faster by the load, at most so many."""
    lines = "".join(f"j{number},{number * 100},60,1\n" for number in range(10))
    assumed = Assumed(since_s=200, until_s=900, load=2.0, limit=3)
    assert [(job.name, job.submitted_at) for job in read(tmp_path, PLAIN + lines, assumed=assumed).jobs] == [
        ("j2", 0),
        ("j3", 50),
        ("j4", 100),
    ]


def test_jobs_that_the_cluster_can_never_run_are_left_out_and_named(tmp_path):
    """Nothing would come of them but a wait without end."""
    scenario = read(tmp_path, PLAIN + "small,1,60,4\nhuge,2,60,64\n", assumed=Assumed(nodes=parse_nodes("2x4")))
    assert [job.name for job in scenario.jobs] == ["small"]
    assert any("left out: huge" in note for note in scenario.notes)


def test_a_cluster_that_a_trace_does_not_tell_holds_its_largest_job_and_is_stated(tmp_path):
    """As few nodes as will do."""
    scenario = read(tmp_path, PLAIN + "a,1,60,20\nb,900,60,1\n")
    assert [node.gpus for node in scenario.nodes] == [8, 8, 8]
    assert "3 nodes of 8 GPUs are assumed" in " ".join(scenario.notes)


@pytest.mark.parametrize(
    ("gpus", "elastic", "shape"),
    [
        (1, None, (1, 1, 1, 1)),
        (8, None, (8, 1, 1, 1)),
        (12, None, (6, 2, 2, 2)),
        (64, None, (8, 8, 8, 8)),
        (4, (0.5, 2.0), (1, 4, 2, 8)),
        (64, (0.25, 1.5), (8, 8, 2, 12)),
        (1, (0.5, 1.0), (1, 1, 1, 1)),
    ],
)
def test_gpus_become_workers(tmp_path, gpus, elastic, shape):
    """As few as will do where sizes are fixed; a worker a GPU where a job of one node may change."""
    (job,) = read(tmp_path, f"{PLAIN}a,1,60,{gpus}\n", assumed=Assumed(elastic=elastic)).jobs
    assert (job.gpus_per_worker, job.workers, job.min_workers, job.max_workers) == shape
    assert job.work.alone_s(gpus) == pytest.approx(60)


def test_alibaba_s_own_nodes_are_taken_where_they_are_beside(tmp_path):
    """With their kinds of GPUs; a pod runs on those that it names."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,2,T4\nn1,1,1,0,\n"
    )
    scenario = read(tmp_path, GOOD[4][0], name="openb_pod_list_default.csv")
    assert [(node.name, node.gpus, node.gpu_class) for node in scenario.nodes] == [("n0", 2, "T4")]
    assert scenario.jobs[0].gpu_classes == ("V100M16", "T4")


@pytest.mark.parametrize("text", ["", "x", "4", "0x4", "4x0", "2x4,", "2x4:", "-1x4"])
def test_nodes_that_are_none_are_refused(text):
    """With how they are written."""
    with pytest.raises(SpecError, match="NODESxGPUS"):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("member", "jobs"), [("cluster01", 1595), ("cluster02", 5778), ("cluster03", 3011), ("cluster05", 3629)]
)
@pytest.mark.parametrize("archive", ["elasticflow-traces", "raw-traces"])
def test_microsoft_s_traces_are_read_whole(shared, archive, member, jobs):
    """Every job of every cluster, out of the archives as they were published."""
    path = shared / "data/elasticflow" / f"{archive}.tar.gz" / f"{member}.csv"
    if not path.parent.is_file():
        pytest.skip(f"ElasticFlow's traces are absent: {path.parent}")
    assert len(read_trace(path).jobs) == jobs


def test_philly_is_read_whole(shared):
    """Every job of its fifteen clusters, each of which is a team."""
    path = shared / "data/pollux-osdi21/simulator/traces/philly.csv"
    if not path.is_file():
        pytest.skip(f"Philly's table is absent: {path}")
    scenario = read_trace(path)
    assert len(scenario.jobs) == 82247
    assert len({job.team for job in scenario.jobs}) == 15


def test_pollux_workloads_are_read_with_their_profiles(shared):
    """Each of 160 jobs knows what it would take for itself."""
    folder = shared / "data/pollux-osdi21/simulator"
    if not folder.is_dir():
        pytest.skip(f"Pollux' artifact is absent: {folder}")
    scenario = read_trace(folder / "workloads/workload-6.csv")
    assert (len(scenario.jobs), scenario.gpus, scenario.interval_s) == (160, 64, 60.0)
    assert (scenario.jobs[0].name, scenario.jobs[0].submitted_at, scenario.jobs[0].workers) == ("cifar10-0", 53.0, 6)


def test_a_workload_without_profiles_says_where_they_belong(tmp_path):
    """And of the columns that it is one."""
    with pytest.raises(SpecError, match="no folder traces beside the workload"):
        read(tmp_path, "name,time,application,num_replicas,batch_size\ncifar10-0,53,cifar10,6,2048\n")
