# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import resources

import jsonschema
import pytest

from kfp_volcano.elastic.ledger import Feed, Start, audit, genesis, to_line
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.launcher.result import build_result

SCHEMA = json.loads(resources.files("kfp_volcano.schemas").joinpath("json/result.v1.schema.json").read_text("utf-8"))
UNKNOWN = (
    "samples_expected",
    "samples_seen",
    "duplicates",
    "missing",
    "batches_sha256",
    "loss",
    "metrics",
    "throughput",
)


def checked(run):
    """The run's result, found valid by the published schema."""
    result = build_result(**run.arguments())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(result, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    return result


def test_every_field_of_the_schema_is_described():
    """A reader of result.json finds the meaning of each field in the schema."""
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"])
    for name, field in SCHEMA["properties"].items():
        described = field.get("description") or SCHEMA["$defs"][field["$ref"].rpartition("/")[2]]["description"]
        assert described, name


def test_figures_of_a_run_that_ended_well(run):
    """The figures are those of the ledgers, the manifest, the Job and the timeline."""
    result = checked(run)
    assert (result["job"], result["team"], result["queue"], result["run_id"]) == (
        "vision/digits-1a2b3c4d",
        "vision",
        "research",
        "run-7",
    )
    assert (result["state"], result["reason"]) == ("Succeeded", None)
    assert result["wall_s"] == 158.0
    assert (result["accuracy"], result["epochs"]) == (run.manifest["metrics"]["accuracy"], 20)
    assert (result["samples_expected"], result["samples_seen"]) == (28740, 28740)
    assert (result["duplicates"], result["missing"], result["steps_lost"], result["taken_back"]) == (0, 0, 1, 0)
    assert result["loss"] == [[commit.samples, commit.loss] for commit in run.audit.commits]
    assert len(result["metrics"]["accuracy"]) == 20
    assert result["median_step_s"] == pytest.approx(0.32)
    assert (result["problems"], result["notes"]) == ([], [])


def test_resizes_carry_their_cost(run):
    """Each resize has its pause from the committed steps, and the lost step belongs to the killed worker alone."""
    result = checked(run)
    assert [(r["from"], r["to"], r["reason"]) for r in result["resizes"]] == [
        (2, 8, "QueueIdle"),
        (8, 4, "GangPending"),
        (4, 8, "QueueIdle"),
    ]
    assert [r["pause_s"] for r in result["resizes"]] == pytest.approx([0.09, 0.20, 0.15])
    assert [r["steps_lost"] for r in result["resizes"]] == [0, 0, 0]
    assert [r["done_at"] - r["requested_at"] for r in result["resizes"]] == pytest.approx([3.1, 2.4, 3.2])
    assert [(i["from"], i["to"], i["steps_lost"]) for i in result["interruptions"]] == [(8, 7, 1), (7, 8, 0)]
    assert result["interruptions"][0]["pause_s"] == pytest.approx(0.63)


def test_other_gang_is_the_first_that_waited(run):
    """The gang of the other team has its three times."""
    result = checked(run)
    gang = result["other_gang"]
    assert result["other_gangs"] == [gang]
    assert (gang["job"], gang["team"], gang["gpus"]) == ("speech/gang", "speech", 4)
    assert [gang[key] - run.started_at for key in ("submitted", "started", "ended")] == pytest.approx(
        [60.0, 62.1, 92.3]
    )


def test_steps_are_in_the_order_they_ran(run):
    """Steps come in the order they started, however the Job's record holds them."""
    names = [step["name"] for step in checked(run)["steps"]]
    assert names[:5] == ["submit", "train-1", "resize-1", "train-2", "resize-2"]
    assert names[-1] == "collect"


def test_throughput_adds_up_to_the_samples(run):
    """Rates times their windows are the samples committed since the first step."""
    result = checked(run)
    first = run.audit.commits[0]
    edges = [[first.time, first.samples], *result["progress"]]
    for (begin, before), (end, samples), (at, rate) in zip(edges, edges[1:], result["throughput"], strict=False):
        assert samples == at
        assert end - begin >= 1
        assert rate * (end - begin) == pytest.approx(samples - before, rel=1e-3)


def test_failed_run_says_why_and_what_is_unknown(run):
    """Without final weights, ledgers or timeline the figures are null, and notes say so."""
    run.audit, run.manifest, run.timeline, run.resizes = None, None, [], []
    run.job["status"]["state"] = {"phase": "Failed", "reason": "TaskFailed", "message": "worker 0 raised ValueError"}
    result = checked(run)
    assert (result["state"], result["reason"]) == ("Failed", "TaskFailed: worker 0 raised ValueError")
    assert all(result[field] is None for field in (*UNKNOWN, "accuracy", "epochs", "workers", "interruptions", "gpus"))
    assert (result["other_gang"], result["other_gangs"], result["resizes"]) == (None, [], [])
    assert len(result["notes"]) == 3


def test_workers_come_from_the_queue_where_there_is_no_ledger(run):
    """Where the ledgers are lost the timeline knows the workers, and resizes cost what was measured as they ran."""
    run.audit = None
    run.resizes[0] = replace(run.resizes[0], pause_s=0.11, steps_lost=0)
    result = checked(run)
    assert [count for _, count in result["workers"]] == [0, 2, 8, 4, 8, 7, 8, 0, 0]
    assert [resize["pause_s"] for resize in result["resizes"]] == [0.11, None, None]


def test_job_without_any_annotation(run):
    """A Job that was submitted by hand and never resized still has its result."""
    run.job["metadata"].pop("labels")
    run.job["metadata"]["annotations"] = {}
    run.resizes = []
    result = checked(run)
    assert (result["team"], result["run_id"], result["steps"]) == ("vision", None, [])
    assert result["resizes"] == []


def test_diverged_training_has_null_for_nan(run):
    """JSON has no NaN: a loss or accuracy that is not finite is null."""
    commits = [replace(commit, loss=math.nan if commit.step > 400 else commit.loss) for commit in run.audit.commits]
    run.audit = replace(run.audit, commits=tuple(commits))
    run.manifest["metrics"]["accuracy"] = math.inf
    result = checked(run)
    assert result["loss"][-1] == [28740, None]
    assert result["accuracy"] is None


def test_unfinished_resize_is_told_as_it_is(run):
    """A refused request has its phase and no times it did not reach."""
    run.resizes[2] = replace(
        run.resizes[2], phase=Phase.REFUSED, patched_at=None, ready_at=None, done_at=None, message="no room"
    )
    last = checked(run)["resizes"][2]
    assert (last["phase"], last["message"], last["done_at"], last["pause_s"]) == ("Refused", "no room", None, None)


def test_result_from_real_ledger_lines(run):
    """Lines as workers write them give the same figures; a corrupted share shows as duplicate and missing."""
    commits = run.audit.commits[:4]
    files = {}
    for rank in range(2):
        start = Start(
            pod=f"w-{rank}", incarnation="0" * 8, time=0.0, seed=0, size=256, batch=64, epochs=1,
            lineage=genesis(seed=0, size=256, batch=64, epochs=1), step=0,
        )  # fmt: skip
        files[f"w-{rank}.jsonl"] = [to_line(start)]
    manifest = {
        "lineage": commits[-1].lineage, "step": 4, "size": 1437, "batch": 64, "epochs": 20, "seed": 0, "metrics": {},
    }  # fmt: skip
    for commit in commits:
        for rank, lines in enumerate(files.values()):
            ids = list(range(commit.step * 64 + rank * 32, commit.step * 64 + rank * 32 + 32))
            if commit.step == 2 and rank == 1:
                ids[0] = 0
            feed = Feed(
                attempt=commit.attempt, step=commit.step, epoch=0, parent=commit.parent, world=2, rank=rank,
                ids=ids, time=commit.time - 0.1,
            )  # fmt: skip
            lines += [to_line(feed), to_line(commit)]
    run.audit, run.manifest, run.resizes = audit(files, manifest), manifest, []
    result = checked(run)
    assert (result["problems"], result["samples_seen"], result["duplicates"]) == ([], 256, 1)
    assert result["missing"] == 28740 - 255
    assert result["notes"] == ["The training code logged no accuracy."]
    assert [loss for _, loss in result["loss"]] == [commit.loss for commit in commits]
