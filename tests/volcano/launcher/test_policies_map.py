# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap of Policies: what is written is what autoscalers take up, and nothing that they would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.autoscaler.policy_file import read_policies
from kfp_volcano.errors import ConflictError, SpecError
from kfp_volcano.schemas.names import POLICIES_CONFIG
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.policies_map import put_policy, with_policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def document(name: str, queue: str, share: float = 0.5) -> str:
    """A Policy, with a comment that is a user's."""
    return (
        f"# of {name}\napiVersion: kfp-volcano/v1\nkind: Policy\nmetadata: {{name: {name}}}\n"
        f"spec:\n  queues: ['{queue}']\n  threshold: {{up: {{idleShare: {share}}}}}\n"
    )


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path / "cluster")
    yield cluster
    cluster.shutdown(grace_s=0)


def kept(cluster: EmbeddedCluster) -> dict[str, str]:
    """The ConfigMap's files."""
    data: dict[str, str] = cluster.get("ConfigMap", POLICIES_CONFIG, "vision")["data"]
    return data


def test_what_is_put_is_what_autoscalers_read(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The first makes the ConfigMap, others come beside, one of a name that is there takes its place, as written."""
    assert put_policy(cluster, "vision", document("default", "*")) == "default.yaml"
    assert put_policy(cluster, "vision", document("lab", "lab-*")) == "lab.yaml"
    assert put_policy(cluster, "vision", document("default", "*", 0.1)) == "default.yaml"
    assert kept(cluster) == {"default.yaml": document("default", "*", 0.1), "lab.yaml": document("lab", "lab-*")}
    for key, text in kept(cluster).items():
        (tmp_path / key).write_text(text, encoding="utf-8")
    read = read_policies(tmp_path)
    assert (read.of("other").name, read.of("other").blocks["threshold"]["up"]["idleShare"]) == ("default", 0.1)
    assert read.of("lab-1").name == "lab"


def test_a_policy_among_others_in_a_file_is_exchanged_there(tmp_path: Path) -> None:
    """The others of the file stay; other keys are left alone."""
    data = {"all.yaml": f"{document('a', 'a')}---\n{document('b', 'b')}", "notes.txt": "not: [a policy"}
    key, text = with_policy(data, document("b", "b", 0.25))
    assert key == "all.yaml"
    (tmp_path / key).write_text(text, encoding="utf-8")
    read = read_policies(tmp_path)
    assert [(each.name, each.blocks["threshold"]["up"]["idleShare"]) for each in read.each] == [("a", 0.5), ("b", 0.25)]


@pytest.mark.parametrize(
    "text",
    [document("other", "*"), document("default", "*").replace("idleShare", "idelShare"), "kind: Policy\n", "- a\n"],
)
def test_what_autoscalers_would_refuse_is_not_written(cluster: EmbeddedCluster, text: str) -> None:
    """A second Policy that fits the same queues as well, one with a mistake, what is none: the map stays as it was."""
    put_policy(cluster, "vision", document("default", "*"))
    with pytest.raises(SpecError):
        put_policy(cluster, "vision", text)
    assert kept(cluster) == {"default.yaml": document("default", "*")}


def test_what_another_writes_meanwhile_is_not_lost(cluster: EmbeddedCluster) -> None:
    """A write on top of what was not read is refused, and done anew on what is there by then."""
    put_policy(cluster, "vision", document("default", "*"))
    late = Late(cluster, [document("mine", "mine")])
    put_policy(late, "vision", document("lab", "lab"))  # type: ignore[arg-type]
    assert set(kept(cluster)) == {"default.yaml", "lab.yaml", "mine.yaml"}
    always = Late(cluster, [document("mine", "mine", share / 10) for share in range(1, 9)])
    with pytest.raises(ConflictError):
        put_policy(always, "vision", document("lab", "lab", 0.2))  # type: ignore[arg-type]


class Late:
    """A cluster at which someone writes between a read and the write that follows."""

    def __init__(self, cluster: EmbeddedCluster, others: list[str]) -> None:
        self._cluster = cluster
        self._others = others

    def get(self, *given: str) -> Any:
        found = self._cluster.get(*given)
        if self._others:
            put_policy(self._cluster, "vision", self._others.pop(0))
        return found

    def patch(self, *given: Any) -> Any:
        return self._cluster.patch(*given)
