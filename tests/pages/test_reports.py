# SPDX-License-Identifier: Apache-2.0
"""The pages of results as people look at them: on a phone, in print, by keyboard, in the UI's frame."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.volcano.launcher.report import render_report

if TYPE_CHECKING:
    from collections.abc import Callable

    Show = Callable[..., Any]

pytestmark = pytest.mark.slow

PAGES = ["run", "simulation"]
FITS = "document.documentElement.scrollWidth <= window.innerWidth"
NAMED = """() => [...document.querySelectorAll("svg, canvas, img")].filter(each =>
  each.getAttribute("aria-hidden") !== "true" && !each.getAttribute("aria-label") && !each.querySelector("title")
  && !each.closest("[aria-hidden=true]") && !each.getAttribute("alt")).map(each => each.outerHTML.slice(0, 120))"""
CONTROLS = 'a[href], button, input, summary, [tabindex="0"]'
SHOWN = "all => [...document.querySelectorAll(all)].filter(each => each.getClientRects().length).length"
HEADINGS = "() => [...document.querySelectorAll('h1,h2,h3,h4')].map(each => Number(each.tagName[1]))"
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module", name="made")
def _made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each kind, from real results, and beside it its figures."""
    folder = tmp_path_factory.mktemp("pages")
    simulated = folder / "simulated"
    command = [sys.executable, "-m", "kfp_volcano", "simulate", str(root / "tests" / "pages" / "day.yaml")]
    subprocess.run([*command, "--policy", "fifo", "--policy", "threshold", "-o", str(simulated)], check=True)
    return {"simulation": simulated / "report.html", "run": _run_report(root, folder / "run")}


def _run_report(root: Path, out: Path) -> Path:
    """Of a result that a run has left, golden beside the schema's tests."""
    result = json.loads((root / "tests" / "golden" / "pages" / "run.result.json").read_text(encoding="utf-8"))
    out.mkdir()
    (out / "report.html").write_text(render_report(result), encoding="utf-8")
    (out / "result.json").write_text(json.dumps(result))
    return out / "report.html"


@pytest.fixture(params=PAGES, name="path")
def _path(request: pytest.FixtureRequest, made: dict[str, Path]) -> Path:
    return made[request.param]


def test_it_asks_nobody_and_does_not_complain(path: Path, show: Show) -> None:
    """One file, no request."""
    opened = show(path, offline=True)
    assert opened.complaints == []
    assert [url for url in opened.requests if url != path.resolve().as_uri()] == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(path: Path, show: Show, width: int, scheme: str) -> None:
    """Nothing makes the page scroll sideways, and every text can be read on its ground (WCAG AA)."""
    page = show(path, width, color_scheme=scheme).page
    assert page.evaluate(FITS)
    assert page.evaluate(CONTRAST) == []


def test_it_prints(path: Path, show: Show) -> None:
    """On A4, nothing cut off at the side."""
    page = show(path, 794).page
    page.emulate_media(media="print")
    assert page.evaluate(FITS)
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_it_works_in_the_frame_of_the_ui(path: Path, show: Show, tmp_path: Path) -> None:
    """A sandbox that lets scripts run, and nothing else."""
    frame = tmp_path / "ui.html"
    escaped = path.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    frame.write_text(f'<iframe sandbox="allow-scripts" width="900" height="700" srcdoc="{escaped}"></iframe>')
    opened = show(frame)
    inner = opened.page.frames[1]
    assert inner.locator("h1").inner_text()
    assert inner.evaluate(FITS)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "about:"))] == []


def test_it_can_be_read_aloud(path: Path, show: Show) -> None:
    """A language, a title, one main part, headings in order, pictures with a text, tables with headers."""
    page = show(path).page
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title()
    assert page.locator("main").count() == 1
    levels = page.evaluate(HEADINGS)
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate(NAMED) == []
    assert page.locator("table").count() == page.locator("table:has(th)").count()


def test_all_of_it_is_reached_by_keyboard(path: Path, show: Show) -> None:
    """Each control takes the focus in turn, and shows it."""
    page = show(path).page
    visible = page.evaluate(SHOWN, CONTROLS)
    reached = set()
    for _ in range(visible + 2):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const at = document.activeElement; if (at === document.body) return null;"
            " const style = getComputedStyle(at); return [[...document.querySelectorAll('*')].indexOf(at),"
            " style.outlineStyle !== 'none' || style.boxShadow !== 'none']; }"
        )
        if found:
            reached.add(found[0])
            assert found[1], page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    assert len(reached) >= visible


def swipe(page: Any, chart: str, by: int) -> None:
    """A finger that is put down, moved and lifted."""
    page.locator(chart).first.scroll_into_view_if_needed()
    box = page.locator(chart).first.bounding_box()
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    session = page.context.new_cdp_session(page)
    moves = [("touchStart", at), *(("touchMove", {**at, "x": at["x"] + by * part / 4}) for part in range(1, 5))]
    for kind, place in moves:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [place]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_the_charts_zoom_by_key_and_by_touch(made: dict[str, Path], show: Show) -> None:
    """Plus zooms in, 0 shows the whole again; a swipe moves."""
    page = show(made["simulation"], 390, has_touch=True, is_mobile=True).page
    expect = pytest.importorskip("playwright.sync_api").expect
    section, shown = page.locator("#timelines"), page.locator("#timelines .range")
    whole = shown.inner_text()
    section.focus()
    page.keyboard.press("+")
    expect(shown).not_to_have_text(whole)
    page.keyboard.press("0")
    expect(shown).to_have_text(whole)
    page.locator("[data-do=in]").tap()
    expect(shown).not_to_have_text(whole)
    closer = shown.inner_text()
    swipe(page, "#timelines canvas.jobs", -120)
    expect(shown).not_to_have_text(closer)


def test_the_figures_are_those_of_the_file(made: dict[str, Path], show: Show) -> None:
    """What is shown is what programs read."""
    page = show(made["simulation"]).page
    told = json.loads((made["simulation"].parent / "figures.json").read_text())["policies"]
    cells = page.eval_on_selector_all("data", "all => all.map(each => [each.className, Number(each.value)])")
    shown = {kind: [number for each, number in cells if each == kind] for kind, _ in cells}
    assert {"avg_jct", "p99_jct", "makespan", "utilisation", "jain"} <= shown.keys()
    for kind, numbers in shown.items():
        assert numbers == pytest.approx([figures[kind] for figures in told.values() if figures[kind] is not None]), kind


def test_the_run_s_figures_are_those_of_its_result(made: dict[str, Path], show: Show) -> None:
    """What is shown is what programs read."""
    page = show(made["run"]).page
    result = json.loads((made["run"].parent / "result.json").read_text())
    cells = page.eval_on_selector_all("data", "all => all.map(each => [each.className, each.value, each.innerText])")
    shown = {kind: (json.loads(value), text) for kind, value, text in cells}
    assert {"accuracy", "samples_seen", "duplicates", "missing"} <= shown.keys()
    assert {kind: value for kind, (value, _) in shown.items() if kind in result and value != result[kind]} == {}
    assert shown["samples_seen"][1].startswith(f"{result['samples_seen']:,}")
    assert shown["accuracy"][1].startswith(f"{100 * result['accuracy']:.1f}")
