# SPDX-License-Identifier: Apache-2.0
"""What a real API server says to everything that one Job brings about.

A Job's CRD knows the types of a pod template and not its rules; Volcano's webhook asks Kubernetes' own validation of
pod templates, and the job controller creates pods, a PodGroup, a Service. The judge asks the server about each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from apiserver.client import Answer, Client
from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.admission import admit_create
from kfp_volcano.volcano.model.pod_groups import build_pod_group
from kfp_volcano.volcano.model.pods import build_pod, hosts_config

__all__ = ["Judge", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that the server does not take, and the fields that it found at fault."""

    kind: str
    name: str
    message: str
    fields: tuple[str, ...]


class Judge:
    """Asks about manifests in dry runs; nothing is ever created."""

    def __init__(self, client: Client, namespace: str) -> None:
        """`namespace` is one that exists: every object is asked about there, and its own namespace by itself."""
        self._client = client
        self._namespace = namespace
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="judge")
        self.asked = 0

    def refusals(self, objects: Sequence[Mapping[str, Any]]) -> list[Refusal]:
        """Why a Job, rendered with what comes with it, could not run as meant; empty where all is accepted."""
        own = objects[-1]["metadata"]["namespace"]
        here = [{**each, "metadata": {**each["metadata"], "namespace": self._namespace}} for each in objects]
        answers = self._answers([*here, *_surroundings(own)])
        for manifest, answer in list(answers):
            if manifest["kind"] == "Job" and answer.accepted:
                answers += self._answers(_made_from(dict(answer.body)))
        return _refused(answers)

    def queue_refusals(self, objects: Sequence[Mapping[str, Any]]) -> list[Refusal]:
        """Why the objects of a tree of queues could not be created in their order; empty where all are accepted.

        The policies look at each queue alone; for what Volcano's webhook asks of families the model speaks.
        """
        spaces = {each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]} - {"default"}
        quotas = [
            {**each, "metadata": {**each["metadata"], "namespace": self._namespace}}
            for each in objects
            if each["kind"] == "ResourceQuota"
        ]
        queues = [dict(each) for each in objects if each["kind"] == "Queue"]
        found = _refused(
            self._answers([*queues, *quotas, *(each for space in spaces for each in _surroundings(space))])
        )
        return [*found, *_refused_by_the_model(queues)]

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown()

    def _answers(self, manifests: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], Answer]]:
        asked = list(manifests)
        return list(zip(asked, self._threads.map(self._ask, asked), strict=True))

    def _ask(self, manifest: Mapping[str, Any]) -> Answer:
        self.asked += 1
        return self._client.create(manifest, dry_run=True, strict=True)


def _refused(answers: Iterable[tuple[Mapping[str, Any], Answer]]) -> list[Refusal]:
    return [
        Refusal(manifest["kind"], manifest["metadata"]["name"], answer.message, answer.fields)
        for manifest, answer in answers
        if not answer.accepted
    ]


def _refused_by_the_model(queues: Sequence[dict[str, Any]]) -> list[Refusal]:
    there: dict[tuple[str, str], dict[str, Any]] = {}
    for queue in queues:
        name = queue["metadata"]["name"]
        try:
            there["", name] = {**admit_create(queue, {"Queue": there}), "status": {"state": "Open"}}
        except InvalidError as error:
            return [Refusal("Queue", name, str(error), error.fields)]
    return []


def _surroundings(namespace: Any) -> Iterator[dict[str, Any]]:
    """What has to be there before the Job; `default` is, and cannot be created again."""
    if namespace != "default":
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}


def _made_from(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What Volcano makes of a Job that has been admitted."""
    namespace = job["metadata"]["namespace"]
    for task in job["spec"]["tasks"]:
        yield {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": task["name"], "namespace": namespace},
            "template": task["template"],
        }
        for index in sorted({0, max(0, task["replicas"] - 1)}):
            pod = build_pod(job, task, index)
            yield {**pod, "spec": {key: value for key, value in pod["spec"].items() if key not in _MUST_EXIST}}
    yield build_pod_group(job, {})
    yield hosts_config(job)
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job["metadata"]["name"], "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"volcano.sh/job-name": job["metadata"]["name"]}},
    }


_MUST_EXIST = {"priorityClassName", "runtimeClassName", "serviceAccount", "serviceAccountName"}
"""Whether objects of these names exist is another question; about the names the PodTemplate is asked."""
