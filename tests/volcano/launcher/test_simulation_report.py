# SPDX-License-Identifier: Apache-2.0
"""The page of simulations: its figures are the simulator's, it is bounded, and nothing of a trace becomes markup."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from kfp_volcano.elastic.simulator.figures import METRICS, figures
from kfp_volcano.elastic.simulator.outcome import Decided, JobOutcome, Outcome, Span
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.volcano.launcher.simulation_picture import MOST_JOBS, MOST_SPANS, MOST_TEAMS, picture
from kfp_volcano.volcano.launcher.simulation_report import MOST_POLICIES, Section, simulation_report

HOSTILE = '</script><script>alert("x")</script><!--&"\'{{ 7*7 }}'
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Page(HTMLParser):
    """A strict reader: every element is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.cells: list[tuple[str, float]] = []
        self.best: list[bool] = []
        self.text = ""
        self.script = ""
        self._best = False
        self.feed(html)
        self.close()
        assert self.open == []
        self.data: dict[str, Any] = json.loads(self.script)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.references += [given[key] or "" for key in ("href", "src", "action") if key in given]
        assert not [key for key in given if key.startswith("on")]
        if tag == "td":
            self._best = "best" in (given.get("class") or "").split()
        if tag == "data":
            self.cells.append((given["class"] or "", float(given["value"] or "nan")))
            self.best.append(self._best)
        if tag not in {"meta", "br", "input"}:
            self.open.append(f"{tag}#data" if given.get("id") == "data" else tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().partition("#")[0] == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script#data":
            self.script += data
        elif self.open and self.open[-1] not in {"script", "style"}:
            self.text += data


def scenario(*names: str, gpus: int = 4) -> Scenario:
    """One node, and jobs of 100 s on two GPUs, one every 50 s."""
    jobs = tuple(
        Job(name=name, submitted_at=50.0 * at, work=Traced(duration_s=100.0, gpus=2), workers=2, min_workers=1,
            max_workers=4)
        for at, name in enumerate(names)
    )  # fmt: skip
    return Scenario(name="morning", nodes=(Node(name="node-0", gpus=gpus),), jobs=jobs, notes=("Read by hand.",))


def done(
    name: str, at: float, *spans: tuple[float, float, int], team: str = "vision", ended: bool = True
) -> JobOutcome:
    """What became of a job that had these (begin, end, GPUs)."""
    return JobOutcome(
        name=name, team=team, queue="default", submitted_at=at, started_at=spans[0][0] if spans else None,
        ended_at=spans[-1][1] if ended and spans else None, asked_gpus=2, alone_s=100.0, resizes=max(0, len(spans) - 1),
        spans=tuple(Span(begin=begin, end=end, gpus=gpus, lost_s=1.0) for begin, end, gpus in spans),
    )  # fmt: skip


FIXED = Outcome(
    scenario="morning", policy="fixed", gpus=4, ended_at=200.0,
    jobs=(done("a", 0, (0, 100, 2)), done("b", 50, (100, 200, 2), team="speech")),
)  # fmt: skip
ELASTIC = Outcome(
    scenario="morning", policy="elastic", gpus=4, ended_at=150.0,
    jobs=(done("a", 0, (0, 50, 4), (50, 80, 2)), done("b", 50, (50, 150, 2), team="speech")),
    decided=(Decided(at=50.0, job="a", from_workers=4, to_workers=2, reason="Waiting", explanation="b waits for 2."),),
)  # fmt: skip


def test_the_figures_on_the_page_are_those_of_the_simulator_and_the_best_are_marked() -> None:
    """Each cell's value is the field of `figures()`; in each row in which policies differ the better one is marked."""
    page = Page(simulation_report(scenario("a", "b"), [FIXED, ELASTIC]))
    found = [figures(FIXED), figures(ELASTIC)]
    shown = [(key, float(getattr(each, key))) for key in METRICS for each in found if getattr(each, key) is not None]
    assert page.cells == shown
    marked = {cell for cell, best in zip(page.cells, page.best, strict=True) if best}
    assert ("avg_jct", figures(ELASTIC).avg_jct) in marked
    assert ("resizes", 0.0) in marked
    assert not [cell for cell in marked if cell[0] == "jain"] or figures(FIXED).jain != figures(ELASTIC).jain
    for metric in METRICS.values():
        assert metric.meaning in page.text


def test_the_data_of_a_small_outcome_are_complete() -> None:
    """Times in units from the first submission, GPUs by team, what waits, spans and decisions."""
    drawn = picture(["fixed", "elastic"], [FIXED, ELASTIC])
    assert drawn.left_out == ()
    assert drawn.teams == ("vision", "speech")
    assert drawn.data == {
        "unit": 0.001, "end": 200_000, "gpus": 4, "teams": ["vision", "speech"],
        "jobs": [["a", 0, 0, 2], ["b", 1, 50_000, 2]],
        "policies": [
            {
                "name": "fixed", "end": 200_000, "times": [0, 50_000, 100_000, 200_000],
                "bands": [[2, 2, 0, 0], [0, 0, 2, 0]], "waiting": [0, 2, 0, 0],
                "jobs": [
                    [100, 100_000, 0, 0, [0, 100_000, 2, 1000]],
                    [150, 200_000, 0, 0, [100_000, 200_000, 2, 1000]],
                ],
                "decided": [],
            },
            {
                "name": "elastic", "end": 150_000, "times": [0, 50_000, 80_000, 150_000],
                "bands": [[4, 2, 0, 0], [0, 2, 2, 0]], "waiting": [0, 0, 0, 0],
                "jobs": [
                    [80, 80_000, 1, 0, [0, 50_000, 4, 1000, 50_000, 80_000, 2, 1000]],
                    [100, 150_000, 0, 0, [50_000, 150_000, 2, 1000]],
                ],
                "decided": [[50_000, 0, 4, 2, 0, 1]],
            },
        ],
        "texts": ["Waiting", "b waits for 2."],
    }  # fmt: skip


def test_nothing_of_a_trace_becomes_markup() -> None:
    """Names, teams, notes, reasons and tables with markup are shown as text, and the data read back as given."""
    hostile = replace(
        ELASTIC, policy=HOSTILE, notes=(HOSTILE,),
        decided=(replace(ELASTIC.decided[0], job=HOSTILE, explanation=HOSTILE),),
        jobs=tuple(replace(job, name=HOSTILE + job.name[1:], team=HOSTILE, queue=HOSTILE) for job in ELASTIC.jobs[:1]),
    )  # fmt: skip
    given = replace(scenario(HOSTILE), name=HOSTILE, source=HOSTILE, notes=(HOSTILE,))
    section = Section(HOSTILE, (HOSTILE, HOSTILE), ((HOSTILE, HOSTILE),), note=HOSTILE)
    plain = Page(
        simulation_report(scenario("a"), [replace(ELASTIC, jobs=ELASTIC.jobs[:1])], words="w", extra=[section])
    )
    page = Page(simulation_report(given, [hostile], words=HOSTILE, extra=[section]))
    assert page.tags.count("script") == plain.tags.count("script") == 2
    assert page.text.count(HOSTILE) >= 10
    assert page.data["jobs"][0][0] == page.data["teams"][0] == page.data["policies"][0]["name"] == HOSTILE
    assert HOSTILE in page.data["texts"]


def test_the_page_asks_no_host_for_anything_and_keeps_nothing() -> None:
    """No address but the page's own ids, nothing that loads or stores; ids are unique."""
    html = simulation_report(scenario("a", "b"), [FIXED, ELASTIC])
    page = Page(html)
    assert {reference[0] for reference in page.references} <= {"#"}
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(
        r"https?://(?!www\.w3\.org)|fetch\(|XMLHttpRequest|localStorage|cookie|url\((?!#)|@import", html
    )


def test_the_same_outcomes_give_the_same_bytes() -> None:
    """Neither the time nor what was drawn before is in the page."""
    first = simulation_report(scenario("a", "b"), [FIXED, ELASTIC])
    simulation_report(scenario("a"), [replace(FIXED, jobs=FIXED.jobs[:1])])
    assert simulation_report(scenario("a", "b"), [FIXED, ELASTIC]) == first


def test_outcomes_without_jobs_or_ends_have_a_page_too() -> None:
    """Nothing divides by what is not there; what did not end is said."""
    Page(simulation_report(scenario(), [replace(FIXED, jobs=(), ended_at=0.0)]))
    never = replace(FIXED, jobs=(done("a", 0), done("b", 50, (60, 90, 2), ended=False)))
    page = Page(simulation_report(scenario("a", "b"), [never]))
    assert "of 2" in page.text
    assert page.data["policies"][0]["waiting"][-2] == 4


def test_of_many_policies_the_first_and_the_best_are_shown() -> None:
    """A sweep's page has a bounded number of columns, and says which are missing."""
    slow = replace(FIXED, policy="first")
    many = [
        replace(FIXED, policy=f"p{at}", jobs=(done("a", 0, (0, 100 + at, 2)), FIXED.jobs[1])) for at in range(40, 0, -1)
    ]
    page = Page(simulation_report(scenario("a", "b"), [slow, *many]))
    names = [policy["name"] for policy in page.data["policies"]]
    assert names == ["first", *(f"p{at}" for at in range(MOST_POLICIES - 1, 0, -1))]
    assert f"{MOST_POLICIES} of 41 policies" in page.text


def test_policies_of_one_name_are_told_apart() -> None:
    """The second of a name has a number."""
    page = Page(simulation_report(scenario("a", "b"), [FIXED, FIXED]))
    assert [policy["name"] for policy in page.data["policies"]] == ["fixed", "fixed (2)"]


def test_fifty_thousand_jobs_give_a_page_of_at_most_5_mb_that_says_what_is_left_out() -> None:
    """GPU time is whole in the series, figures are of all jobs, and the largest job is among those drawn."""

    def outcome(policy: str, later: float) -> Outcome:
        jobs = []
        for at in range(50_000):
            begin = at * 50.0 + later * (at % 7)
            sizes = [
                (begin + 100.0 * part, begin + 100.0 * (part + 1), 1 + (at + part) % 8) for part in range(2 + at % 2)
            ]
            jobs.append(done(f"application_{at:012d}", at * 50.0, *sizes, team=f"team-{at % 9}"))
        jobs[777] = done("largest", 777 * 50.0, (777 * 50.0, 2e6, 8), team="team-0")
        decided = [
            Decided(at=job.spans[0].end, job=job.name, from_workers=1, to_workers=2, reason="Idle",
                    explanation=f"{job.name} takes what is idle, as nothing else that waits would fit there.")
            for job in jobs
        ]  # fmt: skip
        return Outcome(
            scenario="morning", policy=policy, gpus=64, jobs=tuple(jobs), ended_at=3e6, decided=tuple(decided)
        )

    outcomes = [outcome("fixed", 300.0), outcome("elastic", 100.0), outcome("third", 0.0)]
    html = simulation_report(scenario("a"), outcomes)
    assert len(html.encode()) <= 5_000_000
    page = Page(html)
    assert len(page.data["jobs"]) == MOST_JOBS
    assert sum(len(job[4]) // 4 for policy in page.data["policies"] for job in policy["jobs"]) <= MOST_SPANS
    assert "largest" in {job[0] for job in page.data["jobs"]}
    assert f"{MOST_JOBS:,} of 50,000 jobs" in page.text
    assert "later decisions are not shown" in page.text
    assert len(page.data["teams"]) == MOST_TEAMS + 1
    for given, policy in zip(outcomes, page.data["policies"], strict=True):
        times, bands = policy["times"], policy["bands"]
        drawn = sum(
            band[at] * (times[at + 1] - times[at]) * page.data["unit"] for band in bands for at in range(len(times) - 1)
        )
        assert drawn == pytest.approx(sum(job.gpu_s for job in given.jobs), rel=1e-3)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_draws_the_page_and_lists_the_jobs(tmp_path: Any) -> None:
    """The page's script runs to its end: the list is filled, and the canvases have the size of the screen."""
    path = tmp_path / "report.html"
    path.write_text(simulation_report(scenario("a", "b"), [FIXED, ELASTIC]), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    told = subprocess.run(
        [*command, "--window-size=800,900", "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    table = told.stdout.partition('<table id="list">')[2]
    assert re.findall(r'<button type="button" aria-expanded="false">(\w)</button>', table) == ["a", "b"]
    assert "1 min 40 s" not in table
    assert "100 s" in table
    assert "\N{MINUS SIGN}20 s" in table
    assert len(re.findall(r'<canvas class="(?:gpus|jobs)"[^>]* width="[1-9]\d\d', told.stdout)) == 4
