# SPDX-License-Identifier: Apache-2.0
"""The distribution holds what the checkout does."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest

import kfp_volcano

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("components", "elastic", "pipelines", "schemas", "volcano")


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_link_leads_to_the_folder_of_its_name(folder: str) -> None:
    """A checkout without symbolic links (Windows' default) would build an empty package, silently."""
    assert (ROOT / "src" / "kfp_volcano" / folder).resolve() == ROOT / folder


def test_every_template_and_schema_is_a_resource() -> None:
    """What is read at run time is found through the import name."""
    package = resources.files(kfp_volcano)
    assert package.joinpath("schemas/json/training-job.v1.schema.json").is_file()
    assert package.joinpath("volcano/manifests/templates/job.json.j2").is_file()
    assert package.joinpath("volcano/launcher/templates/report.html.j2").is_file()
    assert package.joinpath("py.typed").is_file()


def test_public_names_are_all_there() -> None:
    """`__all__` is sorted and each name resolves."""
    assert kfp_volcano.__all__ == sorted(kfp_volcano.__all__)
    for name in kfp_volcano.__all__:
        assert getattr(kfp_volcano, name) is not None
    with pytest.raises(AttributeError, match="absent"):
        _ = kfp_volcano.absent


@pytest.mark.parametrize("heavy", ["kfp", "ray", "torch", "matplotlib", "kubernetes"])
def test_the_command_line_imports_nothing_heavy(heavy: str) -> None:
    """`kfp-volcano --help` answers at once."""
    code = f"import sys, kfp_volcano.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def build(what: str, source: Path, target: Path) -> str:
    """Build a distribution with the project's backend; its file name."""
    code = f"import hatchling.build as b; print(b.build_{what}({str(target)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return done.stdout.split()[-1]


def test_the_wheel_built_from_the_sdist_has_every_file(tmp_path: Path) -> None:
    """Modules, templates, schemas and examples of the checkout, no more and no fewer."""
    sdist = build("sdist", ROOT, tmp_path)
    subprocess.run(["tar", "xzf", tmp_path / sdist, "-C", tmp_path], check=True)
    source = tmp_path / sdist.removesuffix(".tar.gz")
    wheel = build("wheel", source, tmp_path)
    names = {n for n in zipfile.ZipFile(tmp_path / wheel).namelist() if n.startswith("kfp_volcano/")}
    tree = {
        "kfp_volcano/" + str(path.relative_to(base))
        for base, folders in ((ROOT / "src" / "kfp_volcano", ("",)), (ROOT, FOLDERS))
        for folder in folders
        for path in (base / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not any(part.is_symlink() for part in path.parents)
    }
    assert names == tree
