# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.launcher.report import render_report, summary_markdown, write_report
from kfp_volcano.volcano.launcher.result import build_result

VOID = {"meta", "br", "link", "img", "input", "hr"}
EMPTY_SVG = {"path", "use", "rect", "g"}
HOSTILE = '<script>alert("x")</script>&"\'$x$'


class Page(HTMLParser):
    """A strict reader: every element is closed in order; collects what tests ask for."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.values, self.text, self.references = [], [], [], [], [], []
        self.headers = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert len(given) == len(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.references += [given[key] for key in ("href", "src", "xlink:href", "data", "action") if key in given]
        assert not [key for key in given if key.startswith("on")]
        if tag == "data":
            self.values.append((given["class"], json.loads(given["value"])))
        if tag == "th":
            self.headers.append(given.get("scope"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID | EMPTY_SVG
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def of(self, field):
        return [value for name, value in self.values if name == field]


@pytest.fixture
def result(run):
    return build_result(**run.arguments())


@pytest.fixture
def failed(run):
    run.audit, run.manifest, run.timeline, run.resizes = None, None, [], []
    run.job["status"]["state"] = {"phase": "Failed", "reason": "TaskFailed", "message": "worker 0 raised ValueError"}
    return build_result(**run.arguments())


def test_page_is_well_formed_and_accessible(result):
    """Elements nest, ids are unique, tables have scoped headers, each chart has a title and a description."""
    html = render_report(result)
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert len(page.ids) == len(set(page.ids))
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(page.ids)
    assert set(page.headers) == {"col", "row"}
    assert page.tags.count("figure") == page.tags.count("figcaption") == 4
    assert page.tags.count("desc") == 8
    for label in re.findall(r'aria-labelledby="([^"]+)"', html):
        assert set(label.split()) <= set(page.ids)


def test_page_needs_nothing_else(result, failed):
    """No script, no reference to any place but within the page, no font or style sheet to load."""
    for html in (render_report(result), render_report(failed)):
        page = Page(html)
        assert all(reference.startswith("#") for reference in page.references)
        assert not {"script", "link", "iframe", "object", "embed", "img", "base", "form"} & set(page.tags)
        assert not re.search(r"https?:|//[a-z]|@import|@font-face|url\((?!#)", html)


def test_figures_are_those_of_the_result(result):
    """Every figure of result.json that the page shows is the very value."""
    page = Page(render_report(result))
    for field in ("accuracy", "epochs", "wall_s", "duplicates", "missing", "samples_expected", "median_step_s"):
        assert page.of(field) == [result[field]], field
    assert page.of("samples_seen") == [result["samples_seen"]] * 2
    changes = [*result["resizes"], *result["interruptions"]]
    for field in ("from", "to", "pause_s"):
        assert page.of(field) == [change[field] for change in changes], field
    assert page.of("steps_lost") == [result["steps_lost"], *(change["steps_lost"] for change in changes)]
    assert page.of("lasting") == [resize["done_at"] - resize["requested_at"] for resize in result["resizes"]]
    assert page.of("longest_pause_s") == [max(resize["pause_s"] for resize in result["resizes"])]
    assert result["batches_sha256"] in page.text
    for step in result["steps"]:
        assert step["name"] in page.text


def test_page_tells_the_story(result):
    """The sentences name sizes, reasons, the other team's gang, and that the samples are exact."""
    text = " ".join(" ".join(Page(render_report(result)).text).split())
    for told in (
        "vision/digits-1a2b3c4d trained for 20 epochs in 2 min 38 s and reached an accuracy of 97.2%.",
        "It began with 2 workers, grew to 8 because GPUs of the queue were idle, shrank to 4 so that speech/gang",
        "speech/gang could have its 4 GPUs, and grew to 8 once speech/gang had ended.",
        "speech/gang waited 2.1 s for 4 GPUs and held them for 30 s.",
        "All 28,740 samples were fed exactly once",
        "The resizes paused training for 0.20 s at most and cost no step.",
        "Unplanned, workers fell from 8 to 7 once; training went on after 0.63 s.",
    ):
        assert told in text


def test_hostile_text_is_shown_as_text(run):
    """Names and sentences from users cannot become markup, in the page or in Markdown."""
    run.resizes = [replace(r, explanation=HOSTILE, reason=HOSTILE, message=HOSTILE) for r in run.resizes]
    run.job["metadata"]["name"] = HOSTILE
    run.job["metadata"]["labels"][names.TEAM_LABEL] = HOSTILE
    run.job["spec"]["queue"] = HOSTILE
    for line in run.timeline:
        line["queue"] = HOSTILE
        for job in line.get("jobs", []):
            job["team"] = HOSTILE if job["team"] == "vision" else job["team"] + HOSTILE
    run.job["status"]["state"] = {"phase": HOSTILE, "reason": HOSTILE, "message": HOSTILE}
    result = build_result(**run.arguments())
    html = render_report(result)
    page = Page(html)
    assert "<script" not in html
    assert HOSTILE in page.text
    assert page.tags.count("figure") == 4
    assert "<" not in summary_markdown(result).replace("&lt;", "")


def test_rendering_is_deterministic(result):
    """The same result gives the same bytes."""
    assert render_report(result) == render_report(json.loads(json.dumps(result)))


def test_failed_run_has_its_report(failed):
    """Without any figure the page says what is known: how it ended, why, and what is missing."""
    text = " ".join(Page(render_report(failed)).text)
    assert "did not succeed: Failed (TaskFailed: worker 0 raised ValueError)" in text
    for note in failed["notes"]:
        assert note in text
    assert "The run left no figures to draw." in text


@pytest.mark.parametrize("field", ["audit", "manifest", "timeline"])
def test_each_source_may_be_missing_alone(run, field):
    """Whatever a run left behind, there is a report of it."""
    setattr(run, field, [] if field == "timeline" else None)
    result = build_result(**run.arguments())
    page = Page(render_report(result))
    assert set(result["notes"]) <= set(page.text)


def test_many_resizes_and_teams_still_fit(run):
    """Dozens of close marks are stacked instead of overlapping, and teams beyond the palette are one."""
    run.resizes = [
        replace(run.resizes[index % 3], id=str(index), requested_at=run.started_at + 20 + index, phase=Phase.DONE)
        for index in range(40)
    ]
    for line in run.timeline:
        line.get("jobs", []).extend(
            {"job": f"t{n}/g", "team": f"t{n}", "gpus": 1, "pending_gpus": 0, "phase": "Running", "workers": None}
            for n in range(8)
        )
    result = build_result(**run.arguments())
    text = " ".join(Page(render_report(result)).text)
    assert "6 other teams" in text
    assert "was resized 40 times, between 2 and 8 workers." in text


def test_corrupted_samples_are_told(run):
    """Duplicates, missing samples and the audit's problems stand where nobody overlooks them."""
    run.audit = replace(run.audit, duplicates=3, missing=3, problems=("step 7: ids fed twice",))
    result = build_result(**run.arguments())
    text = " ".join(Page(render_report(result)).text)
    assert "✕ not exact" in text
    assert "Of 28,740 samples to feed, 3 were missed and 3 fed twice or more." in text
    assert "step 7: ids fed twice" in text


def test_written_files_hold_the_report_and_the_result(tmp_path, result):
    """Both files are there, whole, and nothing beside them; writing again replaces them."""
    for _ in range(2):
        report, figures = write_report(tmp_path / "out" / "report", result)
    assert report.read_text("utf-8") == render_report(result)
    assert json.loads(figures.read_text("utf-8")) == result
    assert sorted(path.name for path in report.parent.iterdir()) == ["report.html", "result.json"]


def test_markdown_is_short_and_names_each_resize(result):
    """A heading, the story, and a row for each resize."""
    lines = summary_markdown(result).splitlines()
    assert lines[0] == "## vision/digits-1a2b3c4d: Succeeded"
    assert [line for line in lines if line.startswith("| 2 ")] == ["| 2 | 8 → 4 | GangPending | 2.4 s | 0.20 s | 0 |"]
    assert len(lines) < 15


def test_a_batch_that_followed_the_workers_is_told(result):
    """Its sizes and learning rates stand in a table of their own; a batch that stayed needs none."""
    assert "batches" not in Page(render_report(result)).ids
    sizes = [(0, 2, 64, [0.1, 0.1]), (640, 8, 256, [0.4, 0.2]), (900, 2, 64, [None, None])]
    result["batches"] = [dict(zip(("samples", "workers", "batch", "lr"), size, strict=True)) for size in sizes]
    page = Page(render_report(result))
    assert "batches" in page.ids
    assert page.of("batch") == [64, 256, 64]
    assert {"0.1", "0.4 … 0.2"} <= {*page.text}
