# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kfp_volcano.errors import ConflictError, JobFailedError
from kfp_volcano.volcano.launcher.data_manifest import DataFile, DataManifest
from kfp_volcano.volcano.launcher.registry import Registry

AT = "2026-11-30T12:00:00+00:00"


@pytest.fixture(name="registry")
def _registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "models")


def judged(registry: Registry, version: str, candidate: float, deployed: float | None, **options: object) -> bool:
    """A version from its beginning to the decision."""
    against = registry.deployed
    registry.begin(version, DataManifest({version: DataFile(1, 1, version)}))
    trained = registry.folder.parent / f"trained-{version}"
    trained.mkdir(exist_ok=True)
    (trained / "model.pt").write_text(version)
    registry.stage(version, trained)
    evaluation = {"metric": "accuracy", "candidate": candidate, "deployed": deployed}
    (registry.version(version) / "evaluation.json").write_text(json.dumps(evaluation))
    said = {"least_gain": 0.0, "against": against, "at": AT, **options}
    return registry.decide(version, **said)[0]  # type: ignore[arg-type]


def test_what_is_better_is_deployed_and_what_is_worse_is_not(registry: Registry):
    """The first of all, an equal one, a better one; not a worse one."""
    told = [judged(registry, *each) for each in (("a", 0.5, None), ("b", 0.5, 0.5), ("c", 0.6, 0.5), ("d", 0.5, 0.6))]
    assert told == [True, True, True, False]
    pointer = json.loads((registry.folder / "promoted.json").read_text())
    assert pointer["version"] == "c"
    assert (registry.folder / pointer["model"] / "model.pt").read_text() == "c"
    assert pointer["evaluation"] == {"metric": "accuracy", "candidate": 0.6, "deployed": 0.5}


def test_a_gain_can_be_asked_for(registry: Registry):
    """A model that is better by less is not deployed."""
    judged(registry, "a", 0.5, None)
    assert not judged(registry, "b", 0.54, 0.5, least_gain=0.05)
    assert judged(registry, "c", 0.56, 0.5, least_gain=0.05)


def test_the_data_of_a_model_that_was_kept_out_is_no_longer_new(registry: Registry):
    """Training with it again would bring the same; what was never judged does not count."""
    assert registry.data() is None
    judged(registry, "a", 0.5, None)
    judged(registry, "b", 0.4, 0.5)
    registry.begin("c", DataManifest({}))
    assert registry.data() == DataManifest({"b": DataFile(1, 1, "b")})


def test_a_step_that_is_run_again_comes_to_the_same(registry: Registry):
    """Its pod was lost after any of its lines."""
    judged(registry, "a", 0.5, None)
    assert judged(registry, "b", 0.6, 0.5, against="a")
    assert judged(registry, "b", 0.6, 0.5, against="a")
    assert registry.deployed == "b"


def test_a_model_deployed_meanwhile_is_not_replaced(registry: Registry):
    """The comparison was with another one."""
    judged(registry, "a", 0.5, None)
    judged(registry, "b", 0.6, 0.5)
    with pytest.raises(ConflictError, match="compared with a, but b"):
        judged(registry, "c", 0.55, 0.5, against="a")
    assert registry.deployed == "b"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"metric": "a", "candidate": "x"}', '{"metric": "a", "candidate": NaN}']
)
def test_an_evaluation_that_says_nothing_deploys_nothing(registry: Registry, text: str):
    """The step fails and says what was to be there."""
    registry.begin("a", DataManifest({}))
    (registry.version("a") / "evaluation.json").write_text(text)
    with pytest.raises(JobFailedError):
        registry.decide("a", against=None, least_gain=0.0, at=AT)
    assert registry.deployed is None
    assert registry.judged() == []


def test_a_pointer_that_cannot_be_read_is_not_taken_for_none(registry: Registry):
    """Else the next model would be deployed whatever it is worth."""
    registry.folder.mkdir(parents=True)
    (registry.folder / "promoted.json").write_text("{")
    with pytest.raises(ConflictError, match="cannot be read"):
        _ = registry.deployed


def test_old_versions_go_but_never_the_one_deployed(registry: Registry):
    """The newest stay, and the deployed one however old it is; what a failed run began goes after a week."""
    judged(registry, "a", 0.9, None)
    for number in range(5):
        judged(registry, f"b{number}", 0.1, 0.9)
        os.utime(registry.version(f"b{number}") / "outcome.json", ns=(0, 10**18 + number))
    os.utime(registry.version("a") / "outcome.json", ns=(0, 1))
    for name, at in (("failed", 10), ("begun", 10**6)):
        registry.begin(name, DataManifest({}))
        os.utime(registry.version(name) / "data.json", (at, at))
    assert registry.prune(2, now=10**6) == ["b2", "b1", "b0", "failed"]
    assert registry.version("begun").is_dir()
    assert registry.judged() == ["b4", "b3", "a"]


def test_a_model_is_taken_in_whole_or_not_at_all(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copy that was cut short is begun again."""
    trained = tmp_path / "trained"
    trained.mkdir()
    for name in ("one", "two"):
        (trained / name).write_text(name)
    with monkeypatch.context() as patched:
        patched.setattr("os.link", _link_once(os.link))
        patched.setattr("shutil.copy2", _refuse)
        with pytest.raises(Exception, match="full"):
            registry.stage("a", trained)
    assert not (registry.version("a") / "model").exists()
    model = registry.stage("a", trained)
    assert sorted(path.name for path in model.iterdir()) == ["one", "two"]


def _link_once(link: object) -> object:
    left = [1]

    def one(source: str, target: str) -> None:
        if not left:
            raise OSError
        left.pop()
        link(source, target)  # type: ignore[operator]

    return one


def _refuse(*_: object) -> None:
    raise OSError("the volume is full")
