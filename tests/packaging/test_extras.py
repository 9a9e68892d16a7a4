# SPDX-License-Identifier: Apache-2.0
"""What an extra brings is missed with a word: which one, and how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USES = [
    ("torch", "train", "from kfp_volcano.elastic.runtime import Training"),
    ("torchft", "train", "from kfp_volcano.elastic.runtime import Training"),
    ("torchft", "train", "from kfp_volcano.elastic.runtime import lighthouse; lighthouse._compiled()"),
    ("tensorflow", "tensorflow", "import kfp_volcano.elastic.runtime.tensorflow"),
    ("ray.tune", "tune", "import kfp_volcano.volcano.launcher.searching.tuning"),
    ("s3fs", "s3", "from kfp_volcano.elastic.runtime.checkpoints.store import Remote; Remote('s3://b/x')"),
    ("gcsfs", "gcs", "from kfp_volcano.elastic.runtime.checkpoints.store import Remote; Remote('gs://b/x')"),
    ("adlfs", "azure", "from kfp_volcano.elastic.runtime.checkpoints.store import Remote; Remote('az://b/x')"),
]
ABSENT = """
import sys
sys.modules[{module!r}] = None
from kfp_volcano.errors import KfpVolcanoError
try:
    {use}
except KfpVolcanoError as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(("module", "extra", "use"), USES, ids=[f"{extra}-{module}" for module, extra, _ in USES])
def test_the_error_names_the_extra(module: str, extra: str, use: str) -> None:
    """And the command that installs it; wrong use, not a failure to be tried again."""
    code = ABSENT.format(module=module, use=use)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("2 "), done.stderr
    assert f"pip install 'kfp-volcano[{extra}]'" in done.stdout


def test_each_extra_is_missed_somewhere() -> None:
    """Those of the examples alone are imported by the examples themselves."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    assert extras - {"examples", "mpi"} == {extra for _, extra, _ in USES}
