# SPDX-License-Identifier: Apache-2.0
"""The locked environment is in step with what the project asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line]
NOT_LOCKED = {"gcs", "azure", "s3", "cluster"}
"""Clients of stores, and a compiler that is fetched only where none is there."""


def asked() -> list[Requirement]:
    """What pyproject.toml asks for directly, in the parts that the lock is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    optional = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    listed = [each for name, part in optional.items() if name not in NOT_LOCKED for each in part]
    return [Requirement(each) for each in (*project["project"]["dependencies"], *listed) if isinstance(each, str)]


@pytest.mark.parametrize("requirement", asked(), ids=str)
def test_what_is_asked_for_is_locked_and_allowed(requirement: Requirement) -> None:
    """Each direct dependency has a pin that its own bounds allow; mended by the command in docs/contributing.md."""
    name = requirement.name.lower()
    pins = [pin for pin in PINS if pin.name.lower() == name]
    assert pins
    for pin in pins:
        (version,) = (each.version for each in pin.specifier)
        assert requirement.specifier.contains(version)
