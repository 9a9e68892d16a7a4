# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of its node, as Kubernetes reckons it."""

from __future__ import annotations

from kfp_volcano.volcano.model.resources import pod_request


def container(cpu: int, **more: str) -> dict[str, object]:
    return {"resources": {"requests": {"cpu": str(cpu)}}, **more}


def request(*containers: int, inits: list[dict[str, object]]) -> float:
    return pod_request({"containers": [container(each) for each in containers], "initContainers": inits})["cpu"] / 1000


def test_init_containers_count_one_at_a_time() -> None:
    """The largest of them, where it is larger than the containers together."""
    assert request(1, 2, inits=[container(2), container(5), container(1)]) == 5
    assert request(1, 2, inits=[container(2)]) == 3


def test_a_sidecar_counts_beside_all_that_comes_after_it() -> None:
    """The containers, and the init containers that run while it does; not those before it."""
    sidecar = container(2, restartPolicy="Always")
    assert request(1, 2, inits=[sidecar]) == 5
    assert request(1, inits=[sidecar, container(4)]) == 6
    assert request(1, inits=[container(4), sidecar]) == 4
    assert request(1, inits=[sidecar, sidecar, container(4)]) == 8
