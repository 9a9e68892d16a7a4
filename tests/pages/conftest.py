# SPDX-License-Identifier: Apache-2.0
"""A real browser, and what it is asked to show."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Opened:
    """A page, with what it complained of and what it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """From now on."""
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)


@pytest.fixture(scope="session", name="browser")
def _browser() -> Iterator[Browser]:
    """Debian's Chromium; skips where there is none."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no browser: none of {', '.join(BROWSERS)} (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(name="show")
def _show(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a file at a width; `options` are those of a browser's context."""
    contexts = []

    def show(path: Path, width: int = 1280, **options: object) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.listen()
        opened.page.goto(path.resolve().as_uri())
        opened.page.wait_for_load_state("load")
        return opened

    yield show
    for context in contexts:
        context.close()
