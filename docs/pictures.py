# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the documentation from a real run: `python docs/pictures.py [RUN_FOLDER]`.

Without a folder the demo is run for it, which takes some minutes. Needs a Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

_HERE = Path(__file__).parent
_PICTURES = _HERE / "pictures"


def main() -> None:
    """Runs what the pictures show, and takes them."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("docs/pictures.py: no Chromium on the PATH (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else _demo(Path(folder) / "demo")
        simulated = _simulated(Path(folder) / "simulated")
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            _take(chromium, run / "report.html", "report", (1100, 1180))
            _take(chromium, run / "report.html", "report-phone", (390, 844))
            _take(chromium, simulated / "report.html", "simulation", (1100, 1180))
            chromium.close()


def _demo(out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "kfp_volcano", "demo", "--out", str(out)], check=True)
    return out


def _simulated(out: Path) -> Path:
    trace = _HERE.parent / "pipelines" / "policy_ab_test.py"
    command = [sys.executable, "-m", "kfp_volcano"]
    subprocess.run([*command, "run", str(trace), "--local", "--out", str(out), "--param", "replications=4"], check=True)
    shutil.copy(out / "policies.html", out / "report.html")
    return out


def _take(browser: Browser, page: Path, name: str, size: tuple[int, int]) -> None:
    """The first screen of a page."""
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme="light")
    tab.goto(page.resolve().as_uri())
    tab.wait_for_load_state("load")
    tab.screenshot(path=_PICTURES / f"{name}.png")
    tab.close()


if __name__ == "__main__":
    main()
