# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano jobs …`: trainings without a pipeline, and a person's hand on them."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest
import yaml
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.elastic.autoscaler.contracts import hold_of, request_of
from kfp_volcano.elastic.autoscaler.executor import REQUEST_S
from kfp_volcano.errors import ConflictError, NotFoundError, UnavailableError
from kfp_volcano.volcano.cluster import connect
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.jobs import ask_for, workers_of
from kfp_volcano.volcano.launcher.reference import JobRef

RUN = ("--run-id", "r")


def run(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(main, ["jobs", *map(str, arguments)])


@pytest.fixture(name="cluster")
def _cluster(tmp_path, monkeypatch):
    """The cluster that the commands reach."""
    cluster = EmbeddedCluster(tmp_path / "cluster", nodes="1x8", workdir=tmp_path)
    monkeypatch.setattr(connect, "connect", lambda **_: cluster)
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture(name="spec")
def _spec(tmp_path):
    """Writes a TrainingJob whose workers run a shell command."""

    def write(command, *, elastic=False):
        replicas = {"min": 2, "max": 6, "initial": 2, "sizes": [2, 4, 6]} if elastic else 2
        spec = {
            "framework": "custom",
            "image": "x",
            "command": ["sh", "-c", command],
            "queue": "default",
            "roles": {"worker": {"replicas": replicas, "resources": {"gpu": 1}}},
            "elasticity": {"strategy": "restart" if elastic else "fixed", "grace": "1s"},
            "faults": {"retries": 1},
        }
        document = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "train"}, "spec": spec}
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def top(*arguments):
    """Run a command that has no group."""
    return CliRunner().invoke(main, [*map(str, arguments)])


def only(cluster):
    """The one Job there is."""
    (job,) = cluster.list("Job")[0]
    return job


def test_a_training_is_followed_to_its_end(cluster, spec):
    """What the workers print and how the Job stands, and 0."""
    done = run("submit", spec("echo hello from $KFP_VOLCANO_TASK_INDEX"), *RUN)
    assert done.exit_code == 0, done.output
    assert {"worker-0 | hello from 0", "worker-1 | hello from 1"} <= {
        line.replace("core-", "worker-") for line in done.stdout.splitlines()
    }
    assert "has succeeded" in done.stderr


def test_a_training_that_fails_ends_with_1_and_the_reason(spec, cluster):
    """The first failing container, its exit code and its last lines."""
    done = run("submit", spec("echo broken; exit 7"), *RUN)
    assert done.exit_code == 1
    assert "failed with exit code 7" in done.stderr
    assert "broken" in done.stderr
    assert only(cluster)["status"]["state"]["phase"] in {"Failed", "Terminated"}


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_told_to_stop_deletes_its_job(cluster, spec, told):
    """Ctrl-C means: not this training."""
    path = spec("sleep 600")

    def stop():
        while True:
            jobs, version = cluster.list("Job")
            if any(job.get("status", {}).get("state", {}).get("phase") == "Running" for job in jobs):
                signal.pthread_kill(threading.main_thread().ident, told)
                return
            next(iter(cluster.watch("Job", resource_version=version)), None)

    thread = threading.Thread(target=stop)
    thread.start()
    done = run("submit", path, *RUN)
    thread.join()
    assert done.exit_code == 130
    assert "is deleted" in done.stderr
    assert cluster.list("Job")[0] == []
    assert cluster.list("Pod")[0] == []


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_told_to_stop_while_it_creates_its_job_deletes_it(cluster, spec, told, monkeypatch):
    """Nobody would know of a Job whose name was not printed yet."""
    create = cluster.create

    def interrupted(manifest):
        made = create(manifest)
        if manifest["kind"] == "Job":
            signal.raise_signal(told)
        return made

    monkeypatch.setattr(cluster, "create", interrupted)
    done = run("submit", spec("sleep 600"), *RUN)
    assert done.exit_code == 130
    assert cluster.list("Job")[0] == []


def test_looking_on_is_refused_at_once_where_nothing_answers(cluster, monkeypatch):
    """A step waits for its cluster; a person wants to know that there is none."""

    def away(*_args):
        raise UnavailableError("away")

    monkeypatch.setattr(cluster, "get", away)
    assert run("follow", "train-1").exit_code == 3


def test_a_job_that_is_not_there_is_named(cluster):
    """With its namespace, which is `default` where none was said, and where to look."""
    for command in ("cancel", "follow", "release"):
        done = run(command, "train-1")
        assert done.exit_code == 3
        assert "no Job default/train-1" in done.stderr
        assert "jobs list" in done.stderr


def test_what_was_detached_is_taken_up_by_its_run_id(cluster, spec):
    """The Job's name is the output; submitting again with the same id follows that Job."""
    path = spec("sleep 1; echo over")
    done = run("submit", path, *RUN, "--detach")
    assert done.stdout.strip() == f"default/{only(cluster)['metadata']['name']}"
    uid = only(cluster)["metadata"]["uid"]
    again = run("submit", path, *RUN)
    assert again.exit_code == 0
    assert "| over" in again.stdout
    assert only(cluster)["metadata"]["uid"] == uid


def test_what_was_detached_is_the_autoscalers_at_once(cluster, spec):
    """Its Lease is there and nobody's: a resize need not wait for a follower to come."""
    run("submit", spec("sleep 600", elastic=True), *RUN, "--detach")
    (lease,) = cluster.list("Lease")[0]
    assert lease["metadata"]["name"] == only(cluster)["metadata"]["name"]
    assert "holderIdentity" not in lease["spec"]


def test_whoever_looks_on_changes_nothing(cluster, spec):
    """Two may look on, each sees all lines, and neither takes the Lease nor notes what it has printed."""
    name = run("submit", spec("echo once"), *RUN, "--detach").stdout.strip()
    before = cluster.list("Lease")[0]
    for _ in range(2):
        done = run("follow", name)
        assert done.exit_code == 0
        assert done.stdout.count("| once") == 2
    assert cluster.list("Lease")[0] == before
    assert cluster.list("ConfigMap", labels={})[0] == [
        each for each in cluster.list("ConfigMap")[0] if not each["metadata"]["name"].endswith("-logs")
    ]


def test_the_list_tells_size_state_and_why(cluster, spec):
    """As a table and as JSON; other Jobs are none of its business."""
    assert "no trainings in namespace default" in run("list").stderr
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    cluster.create(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "another", "namespace": "default"},
            "spec": {
                "minAvailable": 1,
                "queue": "default",
                "tasks": [
                    {
                        "name": "t",
                        "replicas": 1,
                        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
                    }
                ],
            },
        }
    )
    (line,) = json.loads(run("list", "-A", "-o", "json").stdout)
    assert (line["job"], line["workers"], line["sizes"], line["queue"]) == (name, 2, [2, 4, 6], "default")
    table = run("list").stdout.splitlines()
    assert len(table) == 2
    assert table[1].split()[:2] == [name, "default"]
    assert "2 of 2-6" in table[1]


def test_a_person_asks_for_a_size(cluster, spec):
    """Of those the Job can have; nobody follows it, so the command carries it out."""
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    wrong = run("resize", name, 5)
    assert wrong.exit_code == 2
    assert "5 workers is none of its sizes: 2, 4, 6" in wrong.stderr
    same = run("resize", name, 2)
    assert (same.exit_code, "2 workers already" in same.stderr) == (0, True)
    asked = run("resize", name, 4, "--why", "the demo is over", "--detach")
    assert asked.exit_code == 0
    request = request_of(only(cluster))
    assert (request.from_workers, request.to_workers, request.explanation) == (2, 4, "the demo is over")
    impatient = run("resize", name, 6)
    assert impatient.exit_code == 3
    assert "is being resized" in impatient.stderr


def test_a_request_that_nobody_took_up_in_time_does_not_keep_the_next_one_out(cluster, spec):
    """Else a Job that nobody followed for a while could never be resized by hand again."""
    ref = JobRef.parse(run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip())
    asked = {"by": "somebody", "why": ""}
    assert ask_for(cluster, ref, 4, request_id="one", now=0.0, **asked)
    with pytest.raises(ConflictError, match="is being resized"):
        ask_for(cluster, ref, 6, request_id="two", now=REQUEST_S - 1, **asked)
    assert ask_for(cluster, ref, 6, request_id="two", now=REQUEST_S, **asked)
    assert request_of(only(cluster)).id == "two"


def test_a_person_holds_the_autoscaler_off(cluster, spec):
    """For a time, at a size, with a reason; and lets go."""
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    assert run("hold", name, "--for", "soon").exit_code == 2
    assert "3 workers is none of its sizes" in run("hold", name, "--at", 3).stderr
    assert run("hold", name, "--for", "2h", "--at", 4, "--why", "measuring").exit_code == 0
    held = hold_of(only(cluster))
    assert (held.override, held.reason) == (4, "measuring")
    assert "(held)" in run("list").stdout
    assert "may resize it again" in run("release", name).stdout
    assert "(held)" not in run("list").stdout
    assert "was not held" in run("release", name).stdout


def test_a_size_for_a_time_is_seen_through_and_held(cluster, spec):
    """By one word at the top; nobody follows the Job, so the command carries it out, and lets go at another word."""
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    done = top("resize", name, "--workers", 4, "--for", "2h", "--why", "the demo")
    assert done.exit_code == 0, done.output
    assert "Done: 4 workers" in done.stdout
    held = hold_of(only(cluster))
    assert (held.override, held.reason) == (4, "the demo")
    assert held.until > time.time() + 7000
    assert workers_of(only(cluster)) == 4
    assert top("resize", name, "--workers", 5, "--for", "2h").exit_code == 2
    assert hold_of(only(cluster)).override == 4
    assert "may resize it again" in top("release", name).stdout


def test_the_size_of_a_job_on_a_cluster_is_explained_from_what_is_written_on_it(cluster, spec, monkeypatch, tmp_path):
    """Each resize with its reason, who asked and what came of it, and what a person wants of it now."""
    monkeypatch.chdir(tmp_path)
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    done = top("resize", name, "--workers", 4, "--for", "2h", "--why", "the demo")
    assert done.exit_code == 0, done.output
    lines = top("autoscaler", "explain", name).stdout.splitlines()
    assert lines[0].startswith(f"{name} in queue default, ")
    assert lines[2].endswith("began with 2 workers")
    assert lines[3].endswith("2 -> 4 workers   Override")
    assert lines[4].strip() == "the demo"
    assert lines[5].strip().startswith("asked for by ")
    assert lines[6].strip().startswith("done after ")
    assert "It has 4 workers now: " in lines[-1]
    assert "holds it at 4 workers for 7" in lines[-1]
    assert top("autoscaler", "explain", "nobody").exit_code == 3


def test_a_person_need_not_try_again_because_a_job_changes(cluster, spec, monkeypatch):
    """Its status does so all the time while its pods come and go."""
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    patch, refused = cluster.patch, []

    def patched(*args):
        if args[0] == "Job" and len(refused) < 5:
            refused.append(args)
            raise ConflictError("the object is not as assumed")
        return patch(*args)

    monkeypatch.setattr(cluster, "patch", patched)
    assert top("hold", name, "--for", "2h").exit_code == 0
    assert len(refused) == 5
    assert hold_of(only(cluster)) is not None
    refused.clear()
    assert run("resize", name, 4, "--detach").exit_code == 0
    assert request_of(only(cluster)).to_workers == 4


def test_a_size_for_a_time_does_not_wait_for_the_resize_before(cluster, spec):
    """What is being executed is seen through; the hold says what comes then."""
    name = run("submit", spec("sleep 600", elastic=True), *RUN, "--detach").stdout.strip()
    assert run("resize", name, 4, "--detach").exit_code == 0
    done = top("resize", name, "--workers", 6, "--for", "1h")
    assert done.exit_code == 0, done.output
    assert "after that the autoscaler sees to its 6 workers" in done.stderr
    assert workers_of(only(cluster)) == 4
    assert hold_of(only(cluster)).override == 6


def test_a_fixed_job_is_not_resized(cluster, spec):
    """A word, before anything is written."""
    name = run("submit", spec("sleep 600"), *RUN, "--detach").stdout.strip()
    assert "its number of workers cannot change" in run("resize", name, 4).stderr
    assert "nothing resizes it" in run("hold", name).stderr
    assert workers_of(only(cluster)) == 2


def test_a_job_is_cancelled_with_all_its_pods(cluster, spec):
    """And what is not there is told."""
    name = run("submit", spec("sleep 600"), *RUN, "--detach").stdout.strip()
    done = run("cancel", name, "--yes")
    assert (done.exit_code, f"Job {name} is deleted" in done.stderr) == (0, True)
    assert cluster.list("Pod")[0] == []
    gone = run("cancel", name, "--yes")
    assert gone.exit_code == 3
    assert name.partition("/")[2] in gone.stderr
    with pytest.raises(NotFoundError):
        cluster.get("Job", name.partition("/")[2], "default")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("jobs", "resize", "JOB", 4), "would change Job JOB"),
        (("resize", "JOB", "--workers", 4, "--for", "1h"), "would change Job JOB"),
        (("hold", "JOB"), "would change Job JOB"),
        (("release", "JOB"), "would change Job JOB"),
        (("jobs", "cancel", "JOB"), "would delete Job JOB"),
        (("jobs", "submit", "SPEC", "--run-id", "other"), "would create Job default/train-"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_dry_run_tells_and_changes_nothing(cluster, spec, command, told):
    """No object is another afterwards; what would be written is YAML."""
    path = spec("sleep 600", elastic=True)
    name = run("submit", path, *RUN, "--detach").stdout.strip()
    top("hold", name)
    words = [{"JOB": name, "SPEC": str(path)}.get(word, word) for word in command]

    def written():
        """Of the Job, what people and commands write; its status changes by itself."""
        return [
            (job["metadata"]["name"], job["metadata"]["annotations"], job["spec"]) for job in cluster.list("Job")[0]
        ]

    before = written()
    done = top(*words, "--dry-run")
    assert done.exit_code == 0, done.output
    assert told.replace("JOB", name) in done.stdout
    assert all(isinstance(each, dict | list | None) for each in yaml.safe_load_all(done.stdout))
    assert written() == before


@pytest.mark.parametrize("command", [("jobs", "cancel", "default/x"), ("reap", "--all-namespaces")])
def test_what_destroys_asks_first(cluster, spec, command):
    """Where nobody can be asked it says what it would do, and how to have it done."""
    run("submit", spec("sleep 600"), "--run-id", "r", "--detach")
    name = f"default/{only(cluster)['metadata']['name']}"
    done = top(*(name if word == "default/x" else word for word in command))
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert "--dry-run" in done.stderr
    assert only(cluster)
