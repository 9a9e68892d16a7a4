# SPDX-License-Identifier: Apache-2.0
"""A newcomer's walk: a bare Debian with Python, the README's first command, then the first hour, as written there."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDED = "python3,python3-venv,ca-certificates"
PASSED_ON = ("PIP_", "UV_", "SSL_", "REQUESTS_", "HTTP", "http", "NO_PROXY", "no_proxy")
FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
HOMES = (".config/pip", ".pip", ".config/uv", ".netrc")
MOUNTS = (("proc", "proc"), ("sysfs", "sys"))


class Bare:
    """A root of its own with Debian's Python, and the checkout at /project."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, command: str) -> str:
        """What it prints; fails as it fails."""
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        env = {"PATH": "/project/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        line = ["chroot", str(self.root), "bash", "-c", f"cd /project && {command}"]
        done = subprocess.run(line, env={**passed_on, **env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr


def mirror() -> tuple[str, str]:
    """Where this machine has its release's packages from, and the release."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *folder.glob("*.list"), *folder.glob("*.sources")]
    for text in (path.read_text(encoding="utf-8") for path in files if path.is_file()):
        for stanza in text.split("\n\n"):
            line = re.search(rf"^deb (?:\[[^]]*\] )?(\S+) {release} ", stanza, re.MULTILINE)
            place = re.search(r"^URIs: *(\S+)", stanza, re.MULTILINE)
            if line is not None:
                return line.group(1), release
            if place is not None and re.search(rf"^Suites:.*\b{release}\b(?!-)", stanza, re.MULTILINE):
                return place.group(1), release
    pytest.skip(f"no source of the packages of {release or 'this system'} is configured")


@pytest.fixture(name="bare")
def _bare(tmp_path: Path) -> Iterator[Bare]:
    if os.geteuid() != 0 or shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("making a bare Debian needs root and debootstrap (Debian: apt-get install debootstrap)")
    source, release = mirror()
    root = tmp_path / "debian"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    made = ["debootstrap", "--variant=minbase", f"--include={NEEDED}", release, str(root), source]
    subprocess.run(made, check=True, capture_output=True, env={**os.environ, "PATH": path})
    for name in FILES:
        if Path(name).is_file():
            shutil.copyfile(name, root / name[1:])
    for name in HOMES:
        place = Path.home() / name
        if place.exists():
            (root / "root" / name).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if place.is_dir() else shutil.copyfile)(place, root / "root" / name)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    archive = ["tar", "cf", "-", "-C", str(ROOT), *tracked.splitlines()]
    (root / "project").mkdir()
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as packing:
        subprocess.run(["tar", "xf", "-", "-C", str(root / "project")], stdin=packing.stdout, check=True)
    subprocess.run(["mount", "--rbind", "/dev", str(root / "dev")], check=True)
    for kind, place in MOUNTS:
        subprocess.run(["mount", "-t", kind, kind, str(root / place)], check=True)
    yield Bare(root)
    for place in ("sys", "proc", "dev"):
        subprocess.run(["umount", "-l", str(root / place)], check=False)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page."""
    return [body for kind, body in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if kind == language]


def commands(block: str) -> list[str]:
    """What is to be typed."""
    return [line[2:].split("  #")[0].strip() for line in block.splitlines() if line.startswith("$ ")]


def test_the_first_hour_comes_to_what_it_says(bare: Bare) -> None:
    """The demo with its report, then a script of one's own: read, rehearsed, validated, trained."""
    (demo, *_) = commands(blocks("README.md", "console")[0])
    assert demo == commands(blocks("docs/first-hour.md", "console")[0])[0]
    bare.run(demo)
    assert (bare.root / "project" / "demo-run" / "report.html").is_file()

    train, pipeline = blocks("docs/first-hour.md", "python")
    (spec,) = blocks("docs/first-hour.md", "yaml")
    for name, text in (("train.py", train), ("first.py", pipeline), ("job.yaml", spec)):
        (bare.root / "project" / name).write_text(text, encoding="utf-8")
    here = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8").split("## The rest of it")[0]
    shown = [command for kind, body in BLOCK.findall(here) if kind == "console" for command in commands(body)]
    said = {command: bare.run(command) for command in shown if command != demo}
    assert "is valid" in said["kfp-volcano validate job.yaml"]
    assert "digits" in said["kfp-volcano trace demo-run"]
    assert (bare.root / "project" / "runs" / "first" / "report.html").is_file()
