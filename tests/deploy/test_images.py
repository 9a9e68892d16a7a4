# SPDX-License-Identifier: Apache-2.0
"""The images: what their files promise, and that the one of the steps can be built and does its work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfp_volcano.components.image import STEP_IMAGE
from kfp_volcano.version import __version__

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "deploy" / "images"
DOCKERFILES = sorted(IMAGES.glob("*/Dockerfile"))
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_S = 900


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Its instructions in their order, as (word, arguments), with continued lines joined."""
    text = dockerfile.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, rest in lines]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
class TestEach:
    """What holds for each image."""

    def test_the_base_is_pinned_and_can_be_another(self, dockerfile: Path) -> None:
        """The first instruction names a base with a tag that does not move; every stage comes from it."""
        (first, base), *others = instructions(dockerfile)
        assert first == "ARG"
        assert re.fullmatch(r"BASE=\S+:\d+\.\d+\.\d+\S*", base)
        assert {rest.split()[0] for word, rest in others if word == "FROM"} == {"${BASE}"}

    def test_nobody_is_root_and_nothing_is_cached(self, dockerfile: Path) -> None:
        """The last user is a number other than 0; pip keeps no cache, and takes the versions of constraints.txt."""
        found = instructions(dockerfile)
        users = [rest for word, rest in found if word == "USER"]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
        text = dockerfile.read_text(encoding="utf-8")
        if "pip install" not in text:
            return
        assert "PIP_NO_CACHE_DIR=1" in text or "--no-cache-dir" in text
        assert "constraint" in text.lower()

    def test_the_version_is_this_one(self, dockerfile: Path) -> None:
        """Commands and bases in it name the package's version."""
        named = re.findall(
            r"kfp-volcano/(?:steps|train|digits|retraining):(\S+)", dockerfile.read_text(encoding="utf-8")
        )
        assert set(named) == {__version__}


def test_the_steps_run_in_the_image_that_is_built() -> None:
    """Compiled pipelines name the image as `deploy/images/steps` is built."""
    assert f"-t {STEP_IMAGE} " in (IMAGES / "steps" / "Dockerfile").read_text(encoding="utf-8")


def test_the_pipelines_run_in_images_that_can_be_built() -> None:
    """Each image of ours that a pipeline names has its file here."""
    named = {
        name
        for file in (ROOT / "pipelines").glob("*.py")
        for name in re.findall(r'"kfp-volcano/(\w+):', file.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= {dockerfile.parent.name for dockerfile in DOCKERFILES}


def test_the_context_holds_what_the_build_reads() -> None:
    """`.dockerignore` keeps the package's folders, and what its build and the files of the images name."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    kept = {line[1:] for line in lines if line.startswith("!")}
    linked = {link.resolve().name for link in (ROOT / "src" / "kfp_volcano").iterdir() if link.is_symlink()}
    assert linked | {"src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} <= kept
    assert "*" in lines


@pytest.fixture(scope="module", name="buildah")
def _buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The command of buildah with a storage of its own; skips where it is absent."""
    program = shutil.which("buildah")
    if program is None:
        pytest.skip("buildah is absent (Debian: apt-get install buildah)")
    storage = tmp_path_factory.mktemp("storage")
    yield [program, "--root", str(storage / "root"), "--runroot", str(storage / "run"), "--storage-driver", "vfs"]
    shutil.rmtree(storage, ignore_errors=True)


def run(command: list[str], timeout_s: float = BUILD_S) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment, cwd=ROOT
    )


@pytest.fixture(scope="module", name="base")
def _base(buildah: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image to build on: the pinned one, or where its registry cannot be reached a Debian made here."""
    pinned = instructions(IMAGES / "steps" / "Dockerfile")[0][1].removeprefix("BASE=")
    pulled = run([*buildah, "pull", "--retry", "0", pinned])
    if pulled.returncode == 0:
        return pinned
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    if debootstrap is None or os.geteuid() != 0:
        pytest.skip(f"{pinned} cannot be had, and no base made without debootstrap and root: {pulled.stderr.strip()}")
    context = tmp_path_factory.mktemp("base")
    root = context / "root"
    made = run([debootstrap, "--variant=minbase", "--include=python3-venv,ca-certificates", "bookworm", str(root)])
    if made.returncode != 0:
        pytest.skip(f"{pinned} cannot be had, and debootstrap makes no base: {made.stdout[-300:]}{made.stderr[-300:]}")
    if HOST_CERTIFICATES.is_file():  # of a mirror with an authority of its own
        shutil.copy(HOST_CERTIFICATES, root / HOST_CERTIFICATES.relative_to("/"))
    (context / "Dockerfile").write_text("FROM scratch\nCOPY root /\n")
    built = run([*buildah, "build", "-t", "localhost/base:1.0.0", str(context)])
    shutil.rmtree(context)
    assert built.returncode == 0, built.stderr
    return "localhost/base:1.0.0"


@pytest.mark.slow
@pytest.mark.timeout(3 * BUILD_S)
def test_the_image_of_the_steps_is_built_and_works(buildah: list[str], base: str) -> None:
    """In it the command line, KFP's executor and the coordinator's program start, and nobody is root."""
    index = os.environ.get("PIP_INDEX_URL")
    arguments = ["--build-arg", f"BASE={base}", *(["--build-arg", f"PIP_INDEX_URL={index}"] if index else [])]
    built = run([*buildah, "build", *arguments, "-f", "deploy/images/steps/Dockerfile", "-t", STEP_IMAGE, "."])
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    container = run([*buildah, "from", STEP_IMAGE]).stdout.strip()

    def inside(*command: str) -> subprocess.CompletedProcess[str]:
        return run([*buildah, "run", container, "--", *command])

    assert inside("kfp-volcano", "--version").stdout.strip().endswith(__version__)
    assert inside("id", "-u").stdout.strip() == "10001"
    assert inside("python3", "-m", "kfp.dsl.executor_main", "--help").returncode == 0
    coordinator = inside("python", "-m", "kfp_volcano.elastic.autoscaler.coordinator")
    assert coordinator.returncode == 2
    assert "KFP_VOLCANO_JOB" in coordinator.stderr
