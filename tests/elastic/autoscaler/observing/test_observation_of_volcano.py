# SPDX-License-Identifier: Apache-2.0
"""What is read from objects as Kubernetes 1.35 and Volcano 1.15.1 wrote them, down to what does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kfp_volcano.elastic.autoscaler.observing.observation import WATCHED, observe
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot

NOW = 1_796_072_900.0

NODE = """
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kubernetes.io/arch: amd64, kubernetes.io/hostname: {name}, kubernetes.io/os: linux}}
  resourceVersion: "13700"
spec: {{}}
status:
  allocatable: {{cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", pods: "200"}}
  capacity: {{cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", pods: "200"}}
  conditions: [{{type: Ready, status: "True", reason: KubeletReady, message: ""}}]
"""

QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{creationTimestamp: "2026-11-30T21:04:33Z", generation: 1, name: {name}, resourceVersion: "14594"}}
spec: {{dequeueStrategy: traverse, parent: {parent}, reclaimable: true, weight: 1, {shares}}}
status: {{allocated: {{cpu: "0", memory: "0"}}, reservation: {{}}, state: {state}}}
"""

GROUP_OF_A_BATCH_JOB = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  creationTimestamp: "2026-11-30T21:05:24Z"
  generation: 3
  name: podgroup-a965151e-c56a-4522-9288-241d72272373
  namespace: team
  ownerReferences:
  - apiVersion: batch/v1
    blockOwnerDeletion: true
    controller: true
    kind: Job
    name: kbatch
    uid: a965151e-c56a-4522-9288-241d72272373
  resourceVersion: "14234"
spec:
  minMember: 3
  minResources: {count/pods: "3", nvidia.com/gpu: "6", pods: "3", requests.nvidia.com/gpu: "6"}
  queue: vision
status:
  conditions:
  - lastTransitionTime: "2026-11-30T21:05:25Z"
    reason: NotEnoughResources
    status: "True"
    type: Unschedulable
  phase: Inqueue
"""

GANG = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  creationTimestamp: "2026-11-30T21:08:27Z"
  generation: 1
  name: {name}
  namespace: team
  resourceVersion: "15010"
spec:
  maxRetry: 3
  minAvailable: {pods}
  queue: {queue}
  schedulerName: volcano
  tasks:
  - maxRetry: 3
    minAvailable: {pods}
    name: worker
    replicas: {pods}
    template:
      metadata: {{}}
      spec:
        containers: [{{image: x, name: c, resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}]
        restartPolicy: Never
status:
  conditions: [{{lastTransitionTime: "2026-11-30T21:08:27Z", status: Pending}}]
  minAvailable: {pods}
  state: {{lastTransitionTime: "2026-11-30T21:08:27Z", phase: Pending}}
"""

RUNNING = """
apiVersion: v1
kind: Pod
metadata:
  annotations: {{scheduling.k8s.io/group-name: {name}-02c0cd82, volcano.sh/task-spec: {task}}}
  creationTimestamp: "2026-11-30T21:04:38Z"
  labels: {{volcano.sh/job-name: {name}, volcano.sh/queue-name: {queue}, volcano.sh/task-spec: {task}}}
  name: {name}-{task}-{index}
  namespace: team
  resourceVersion: "13930"
spec:
  containers:
  - image: none
    name: worker
    resources: {{limits: {{nvidia.com/gpu: "1"}}, requests: {{nvidia.com/gpu: "1"}}}}
  nodeName: {node}
status: {{phase: Running}}
"""

ELASTIC = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  annotations:
    kfp-volcano/spec: '{"apiVersion":"kfp-volcano/v1","kind":"TrainingJob","metadata":{"name":"a","namespace":"team"},
      "spec":{"framework":"custom","image":"none","queue":"team-a","command":["true"],"checkpoint":{"volume":"c"},
      "roles":{"worker":{"replicas":{"min":2,"max":12},"resources":{"gpu":1}}},"elasticity":{"strategy":"restart"}}}'
  creationTimestamp: "2026-11-30T21:04:37Z"
  name: a
  namespace: team
  resourceVersion: "13935"
spec:
  minAvailable: 2
  queue: team-a
  tasks:
  - minAvailable: 2
    name: core
    replicas: 2
    template: &one {spec: {containers: [{name: worker, resources: {limits: {nvidia.com/gpu: "1"}}}]}}
  - {minAvailable: 0, name: elastic, replicas: 6, template: *one}
status: {state: {phase: Running}}
"""


def node(name: str) -> str:
    return NODE.format(name=name)


def queue(name: str, *, parent: str = "root", state: str = "Open", **shares: int) -> str:
    said = {key: {"nvidia.com/gpu": str(gpus)} for key, gpus in shares.items()}
    if "guarantee" in said:
        said["guarantee"] = {"resource": said["guarantee"]}  # type: ignore[dict-item]
    flow = yaml.safe_dump(said, default_flow_style=True, width=1000).strip()[1:-1]
    return QUEUE.format(name=name, parent=parent, state=state, shares=flow)


def gang(name: str, queue_name: str, pods: int) -> str:
    return GANG.format(name=name, queue=queue_name, pods=pods)


def seen(queue_name: str, *texts: str) -> QueueSnapshot:
    objects: dict[str, list[Any]] = {kind: [] for kind in WATCHED}
    for manifest in map(yaml.safe_load, texts):
        objects[manifest["kind"]].append(manifest)
    return observe(objects, queue=queue_name, now=NOW)


NODES = (node("gpu-0"), node("gpu-1"))


def test_a_batch_job_that_volcano_schedules_is_a_gang() -> None:
    """Kubernetes' own Jobs are no Volcano Jobs, though their kind has the same name: their PodGroups tell of them."""
    (waits,) = seen("vision", *NODES, queue("vision", deserved=8), GROUP_OF_A_BATCH_JOB).pending
    assert (waits.name, waits.pods) == ("podgroup-a965151e-c56a-4522-9288-241d72272373", (2, 2, 2))


@pytest.mark.parametrize("state", ["Closing", "Closed"])
def test_nothing_is_placed_in_a_queue_that_is_closed(state: str) -> None:
    """Volcano leaves its gangs waiting beside idle nodes, so nobody gives for them, and nobody in it grows."""
    shut = seen("vision", *NODES, queue("vision", state=state, deserved=8), gang("more", "vision", 4))
    assert (shut.pending, shut.free_gpus) == ((), 0)
    reopened = seen("vision", *NODES, queue("vision", deserved=8), gang("more", "vision", 4))
    assert ([each.name for each in reopened.pending], reopened.free_gpus) == (["more"], 16)


def running(name: str, queue_name: str, task: str, index: int) -> str:
    return RUNNING.format(name=name, queue=queue_name, task=task, index=index, node=f"gpu-{index % 2}")


def test_what_a_queue_above_may_have_is_asked_of_the_queues_below_it() -> None:
    """Volcano 1.15 leaves the gang waiting for ever beside 8 idle GPUs: its parent may have 2 more, and it needs 4."""
    tree = (
        queue("dept", capability=10, deserved=8, guarantee=4),
        queue("team-a", parent="dept", capability=9, deserved=4, guarantee=2),
        queue("team-b", parent="dept", deserved=4, guarantee=2),
        queue("vision", deserved=8),
    )
    slots = [("core", 0), ("core", 1), *(("elastic", index) for index in range(6))]
    pods = [running("a", "team-a", task, index) for task, index in slots]
    texts = (*NODES, *tree, ELASTIC, *pods, gang("b", "team-b", 4))
    lending = seen("team-a", *texts)
    assert [(each.name, each.queue, each.gpus, each.short_gpus) for each in lending.claims] == [("b", "team-b", 4, 2)]
    assert lending.limit_gpus == 6
    (decision,) = Guarded(Threshold()).decide(lending)
    assert (decision.from_workers, decision.to_workers, decision.urgent) == (8, 6, True)
    assert seen("vision", *texts).claims == ()
