# SPDX-License-Identifier: Apache-2.0
"""What is installed, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata

__all__ = ["Finding", "examine", "version_of"]

OLDEST_PYTHON = (3, 10)
LEAST_MEMORY_GIB = 6
"""Eight workers of the demo with torch, and Ray."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for."""

    what: str
    found: str
    ok: bool
    remedy: str = ""
    required: bool = True
    """Whether anything works without it."""


_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def version_of(text: str) -> tuple[int, ...] | None:
    """Major and minor number of what something says of its version; None where there are none."""
    found = _VERSION.search(text)
    return tuple(map(int, found.groups())) if found else None


def examine() -> list[Finding]:
    """Look at this machine and environment; nothing is started or changed."""
    packages = [
        ("kfp", "pip install kfp-volcano", True),
        ("ray", "pip install kfp-volcano", True),
        ("kubernetes", "pip install kfp-volcano", True),
        ("torch", "pip install 'kfp-volcano[train]'", False),
        ("torchft", "pip install 'kfp-volcano[train]'", False),
        ("scikit-learn", "pip install 'kfp-volcano[examples]', for the demo", False),
    ]
    return [_python(), _system(), *(_package(*package) for package in packages), _memory(), _shared_memory()]


def _python() -> Finding:
    found = platform.python_version()
    return Finding("python", found, sys.version_info >= OLDEST_PYTHON, "use Python 3.10 or newer")


def _system() -> Finding:
    ok = platform.system() == "Linux"
    remedy = "the embedded cluster needs Linux; compile and render work anywhere"
    return Finding("system", platform.platform(terse=True), ok, remedy, required=False)


def _package(name: str, remedy: str, required: bool) -> Finding:  # noqa: FBT001 - a row of a table
    try:
        return Finding(name, metadata.version(name), ok=True, required=required)
    except metadata.PackageNotFoundError:
        return Finding(name, "not installed", ok=False, remedy=remedy, required=required)


def _memory() -> Finding:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    remedy = f"the demo wants {LEAST_MEMORY_GIB} GiB; run fewer workers: --param max_workers=4"
    found = f"{gib:.0f} GiB, {os.cpu_count()} cores"
    return Finding("memory", found, gib >= LEAST_MEMORY_GIB, remedy, required=False)


def _shared_memory() -> Finding:
    try:
        free = shutil.disk_usage("/dev/shm").free / 2**20  # noqa: S108 - Ray keeps its objects there
    except OSError:
        return Finding("/dev/shm", "absent", ok=False, remedy="mount a tmpfs there, for Ray", required=False)  # noqa: S108
    return Finding("/dev/shm", f"{free:.0f} MiB free", free >= 128, "give it 128 MiB or more, for Ray", required=False)  # noqa: PLR2004, S108
