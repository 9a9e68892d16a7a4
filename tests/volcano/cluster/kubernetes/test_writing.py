# SPDX-License-Identifier: Apache-2.0
"""Changes that are carried out once, however often they have to be asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apiserver.faults import Cut, Fault, FaultyProxy, Refuse, Reset, Seen
from apiserver.server import ApiServer
from kfp_volcano.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.base import Manifest
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig

pytestmark = pytest.mark.cluster

UNSEEN = [Reset(carried_out=True), Cut(20)]
"""The change is made, and nobody hears of it."""


def config(namespace: str, **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}, "data": data}


def asked(method: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.method == method


def replace(value: str, before: str) -> list[dict[str, str]]:
    test = {"op": "test", "path": "/data/x", "value": before}
    return [test, {"op": "replace", "path": "/data/x", "value": value}]


@pytest.mark.parametrize("fault", UNSEEN)
def test_a_creation_nobody_heard_of_is_recognised(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, fault: Fault
) -> None:
    """The object that the lost try created is returned as created."""
    proxy.plan(fault, when=asked("POST"))
    created = through.create(config(namespace, x="1"))
    assert created == through.get("ConfigMap", "a", namespace)


def test_anothers_object_is_not_taken_for_ours(proxy: FaultyProxy, through: KubernetesCluster, namespace: str) -> None:
    """Where a try was lost and the object is there with another content, it is another's: a conflict."""
    through.create(config(namespace, x="theirs"))
    proxy.plan(Reset(), when=asked("POST"))
    with pytest.raises(ConflictError, match="already exists"):
        through.create(config(namespace, x="ours"))


@pytest.mark.parametrize("fault", UNSEEN)
def test_a_deletion_nobody_heard_of_is_done(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, fault: Fault
) -> None:
    """What the lost try deleted is not missed by the next."""
    through.create(config(namespace))
    proxy.plan(fault, when=asked("DELETE"))
    through.delete("ConfigMap", "a", namespace)
    with pytest.raises(NotFoundError):
        through.delete("ConfigMap", "a", namespace)


@pytest.mark.parametrize("fault", [Refuse(500), Refuse(429), Reset()])
def test_a_patch_that_was_not_made_is_made(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, fault: Fault
) -> None:
    """The next try makes it."""
    through.create(config(namespace, x="1"))
    proxy.plan(fault, when=asked("PATCH"))
    assert through.patch("ConfigMap", "a", namespace, replace("2", before="1"))["data"] == {"x": "2"}


@pytest.mark.parametrize("fault", UNSEEN)
def test_a_patch_nobody_heard_of_is_not_made_twice(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, fault: Fault
) -> None:
    """The next try meets the change and fails its test: a conflict, after which the caller reads again."""
    through.create(config(namespace, x="1"))
    proxy.plan(fault, when=asked("PATCH"))
    with pytest.raises(ConflictError, match="test of /data/x failed"):
        through.patch("ConfigMap", "a", namespace, replace("2", before="1"))
    assert through.get("ConfigMap", "a", namespace)["data"] == {"x": "2"}


@pytest.mark.parametrize("fault", UNSEEN)
@pytest.mark.parametrize("others", [{}, {"other": "x"}])
def test_a_record_is_kept_once(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, fault: Fault, others: dict[str, str]
) -> None:
    """Whoever reads again after a conflict finds its own entry, and adds no second one."""
    manifest = config(namespace)
    manifest["metadata"]["annotations"] = others
    through.create(manifest)
    proxy.plan(fault, when=asked("PATCH"))

    def noted(text: str | None) -> str:
        return ",".join(sorted({*(text or "").split(","), "mine"} - {""}))

    update_annotation(through, "ConfigMap", "a", namespace, "who", noted)
    assert through.get("ConfigMap", "a", namespace)["metadata"]["annotations"] == {**others, "who": "mine"}


def test_a_failed_test_of_a_patch_says_which(through: KubernetesCluster, namespace: str) -> None:
    """The API server does not tell a test that failed from a path that is not there: here they are told apart."""
    through.create(config(namespace, x="1"))
    with pytest.raises(ConflictError, match="test of /data/x failed"):
        through.patch("ConfigMap", "a", namespace, replace("3", before="2"))
    with pytest.raises(InvalidError, match="/metadata/absent/deep"):
        through.patch("ConfigMap", "a", namespace, [{"op": "remove", "path": "/metadata/absent/deep"}])


def test_what_admission_refuses_names_its_fields(through: KubernetesCluster, namespace: str) -> None:
    """The server's own words, and the fields it found at fault; nothing is tried again."""
    with pytest.raises(InvalidError, match="must") as refused:
        through.create({**config(namespace), "metadata": {"name": "A_", "namespace": namespace}})
    assert refused.value.fields == ("metadata.name",)


def test_a_missing_permission_comes_with_its_rule(apiserver: ApiServer, namespace: str) -> None:
    """The refusal says who may not do what, and the rule that would allow it, for a Role or a ClusterRole."""
    apiserver.create_service_account("nobody", namespace)
    cluster = KubernetesCluster(from_kubeconfig(apiserver.token_kubeconfig("nobody", namespace)))
    with pytest.raises(ForbiddenError) as refused:
        cluster.list("Job", namespace)
    assert f"a Role in namespace {namespace}" in str(refused.value)
    assert "- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [list]}" in str(refused.value)
    with pytest.raises(ForbiddenError, match=r"a ClusterRole .*\n.*apiGroups: \[\"\"\], resources: \[nodes\]"):
        cluster.list("Node")


def test_a_kind_that_is_not_served_is_told(through: KubernetesCluster, proxy: FaultyProxy) -> None:
    """Without Volcano's CRDs the error says what to install, and is no NotFoundError: no object is missing."""
    proxy.plan(Refuse(404, body=b"404 page not found\n"))
    with pytest.raises(InvalidError, match=r"does not serve Job \(batch.volcano.sh/v1alpha1\): install Volcano"):
        through.get("Job", "a", "default")


def test_a_namespace_that_is_not_there_is_named(through: KubernetesCluster) -> None:
    """Creating in it is refused with its name."""
    with pytest.raises(NotFoundError, match='namespaces "nowhere" not found'):
        through.create(config("nowhere"))


def test_admission_refuses_with_403_too(apiserver: ApiServer, through: KubernetesCluster, namespace: str) -> None:
    """Pod security, quotas and limits do: it is refused, but no permission is missing."""
    label = {"op": "add", "path": "/metadata/labels/pod-security.kubernetes.io~1enforce", "value": "restricted"}
    through.patch("Namespace", namespace, "", [label])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace}}
    with pytest.raises(InvalidError, match="violates PodSecurity"):
        through.create({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
