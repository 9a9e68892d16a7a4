# SPDX-License-Identifier: Apache-2.0
"""Policies in files, read again when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_volcano.elastic.autoscaler.policy_file import PolicyFile, read_policies
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import SpecError

TEXT = """\
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: %s}
spec:
  queues: [%s]
  threshold: {up: {idleShare: %s}}
"""


def text(name: str = "night", queue: str = "research", share: float = 0.5) -> str:
    """A Policy."""
    return TEXT % (name, queue, share)


class Watched:
    """A PolicyFile in a time of its own."""

    def __init__(self, path: Path | None) -> None:
        self.now = 0.0
        self.told: list[SpecError | None] = []
        self.file = PolicyFile(path, told=self.told.append, own={}, clock=lambda: self.now)

    def after(self, seconds: float = 1.0) -> bool:
        """Look again later."""
        self.now += seconds
        return self.file.refresh()

    def settled(self) -> bool:
        """Look until a change would have been read."""
        return any([self.after(), self.after(), self.after()])

    @property
    def share(self) -> float:
        """The setting in force for the queue `research`."""
        inner = self.file.policy_of("research").policy
        assert isinstance(inner, Threshold)
        return inner.settings.up.idle_share


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A file with one Policy."""
    path = tmp_path / "policies.yaml"
    path.write_text(text())
    return path


def test_a_change_is_in_force_once_it_has_settled(path: Path) -> None:
    """Not at the look that first sees it, for it may still be being written; and told once."""
    watched = Watched(path)
    made = watched.file.policy_of("research")
    path.write_text(text(share=0.25))
    assert not watched.after(0.5)
    assert not watched.after(0.6)
    assert watched.share == 0.5
    assert watched.file.policy_of("research") is made
    assert watched.after()
    assert watched.file.spec_in_use("research") != watched.file.spec_of("research")
    assert watched.share == 0.25
    assert watched.file.spec_in_use("research") == watched.file.spec_of("research")
    assert watched.told == [None]
    assert not watched.settled()


def test_a_file_that_grows_is_not_read_in_the_middle(path: Path) -> None:
    """However long the writer takes, while it goes on writing."""
    watched = Watched(path)
    whole = text(share=0.25) + "---\n" + text("other", "vision", 0.1)
    for end in range(1, len(whole), 40):
        path.write_text(whole[:end])
        watched.after()
        assert watched.share == 0.5
    path.write_text(whole)
    assert watched.settled()
    assert watched.share == 0.25
    assert watched.told == [None]


def test_what_is_wrong_is_told_once_and_the_last_good_policies_stay(path: Path) -> None:
    """Also where half of the documents are right, or the file is gone; what is right again is told too."""
    watched = Watched(path)
    path.write_text(text(share=0.25) + "---\n" + text("other", "vision", 7))
    assert not watched.settled()
    assert not watched.settled()
    assert watched.share == 0.5
    assert [type(each) for each in watched.told] == [SpecError]
    path.unlink()
    assert not watched.settled()
    assert watched.share == 0.5
    assert len(watched.told) == 2
    path.write_text(text())
    assert not watched.settled()
    assert watched.told[2:] == [None]


def test_a_config_map_is_exchanged_as_a_whole(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap as links by way of `..data`, and turns that one link over."""
    folder = tmp_path / "mounted"
    for version, share in (("..1", 0.5), ("..2", 0.25)):
        (folder / version).mkdir(parents=True)
        (folder / version / "research.yaml").write_text(text(share=share))
        (folder / version / "vision.yaml").write_text(text("vision", "vision", share))
        (folder / version / "README.txt").write_text("no Policy")
    (folder / "..data").symlink_to("..1")
    for name in ("research.yaml", "vision.yaml", "README.txt"):
        (folder / name).symlink_to(f"..data/{name}")
    watched = Watched(folder)
    assert [each.name for each in read_policies(folder, {}).each] == ["night", "vision"]
    (folder / "..new").symlink_to("..2")
    (folder / "..new").replace(folder / "..data")
    assert watched.settled()
    assert watched.share == 0.25


def test_what_is_wrong_at_the_beginning_is_an_error(tmp_path: Path) -> None:
    """An autoscaler does not start with other Policies than it was given."""
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read"):
        Watched(tmp_path / "nowhere.yaml")
    with pytest.raises(SpecError, match="holds no"):
        Watched(tmp_path)
    (tmp_path / "bad.yaml").write_text(text() + "---\n" + text(share=3))
    with pytest.raises(SpecError, match=r"bad\.yaml, document 2: spec\.threshold\.up\.idleShare"):
        Watched(tmp_path)


def test_without_a_file_the_default_decides() -> None:
    """For every queue, and there is nothing to look at."""
    watched = Watched(None)
    assert not watched.settled()
    assert watched.file.spec_of("research").name == "default"
    assert watched.share == Threshold().settings.up.idle_share


def test_a_policy_of_another_package_that_fails_to_load_is_named(tmp_path: Path, monkeypatch) -> None:
    """With its entry point and the reason; what loads is used."""
    site = tmp_path / "site"
    info = site / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kfp_volcano.policies]\nsteady = mine_policies:Steady\nbroken = no_such_module:Policy\n"
    )
    (site / "mine_policies.py").write_text(
        "class Steady:\n    name = 'steady'\n    def __init__(self, settings): self.settings = settings\n"
        "    def decide(self, snapshot): return ()\n"
    )
    monkeypatch.syspath_prepend(str(site))
    path = tmp_path / "policies.yaml"
    path.write_text(text().replace("  threshold: {up: {idleShare: 0.5}}", "  policy: steady\n  settings: {x: 1}"))
    assert PolicyFile(path).policy_of("research").name == "steady"
    path.write_text(text().replace("  threshold: {up: {idleShare: 0.5}}", "  policy: broken"))
    with pytest.raises(SpecError, match="policy broken: cannot be loaded from no_such_module:Policy"):
        PolicyFile(path)


def test_optional_policies_come_when_they_come(tmp_path):
    """Nothing there, or something wrong, is the default; what is right later is in force then, until it goes."""
    told, now = [], [0.0]
    file = PolicyFile(tmp_path, optional=True, told=told.append, own={}, clock=lambda: now[0])

    def look() -> str:
        for _ in range(3):
            now[0] += 1
            file.refresh()
        return file.spec_of("research").name

    assert look() == "default"
    written = tmp_path / "a.yaml"
    written.write_text("kind: Policy\n")
    assert (look(), [error is None for error in told]) == ("default", [False])
    written.write_text(
        "apiVersion: kfp-volcano/v1\nkind: Policy\nmetadata: {name: steady}\nspec: {queues: ['*'], policy: threshold}\n"
    )
    assert look() == "steady"
    written.unlink()
    assert look() == "default"
    written.write_text("kind: Policy\n")
    assert PolicyFile(tmp_path, optional=True, own={}).spec_of("research").name == "default"
