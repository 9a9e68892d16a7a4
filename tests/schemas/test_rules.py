# SPDX-License-Identifier: Apache-2.0
"""How the parts of a spec have to fit each other: one wrong thing is one problem, at its place."""

from __future__ import annotations

import pytest
import yaml

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.structure import Unknown
from kfp_volcano.schemas.validation import check_known, training_job


def problems(text, **metadata):
    """The problems of a spec in short, by path."""
    spec = {"image": "x", "command": ["x"], "queue": "q", "framework": "custom", **yaml.safe_load(text)}
    value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a", **metadata}, "spec": spec}
    try:
        training_job(value)
    except SpecError as error:
        return {problem.path.removeprefix("spec."): str(problem) for problem in error.problems}
    return {}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_VALUES = "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}"
WORKER = "roles: {worker: {replicas: 2}}"
LIVE = "elasticity: {strategy: live}, checkpoint: {volume: c}"


def patched(pod, *more):
    """A spec whose patch says something of its pods."""
    return f"{{{', '.join([f'podPatch: {{spec: {{{pod}}}}}', *more, WORKER])}}}"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        # frameworks and their roles
        ("{framework: mpi, roles: {worker: {replicas: 2}}}", "roles.launcher", "is missing"),
        ("{framework: ray, roles: {head: {replicas: 2}, worker: {replicas: 1}}}", "roles.head.replicas", "one head"),
        (
            "{framework: tensorflow, roles: {worker: {replicas: 1}, master: {replicas: 1}}}",
            "roles.master",
            "is no role",
        ),
        ("{framework: tensorflow, roles: {ps: {replicas: 1}}}", "roles.worker", "worker or chief"),
        (f"{{mpi: {{}}, {WORKER}}}", "mpi", "for framework mpi alone"),
        (
            f"{{framework: tensorflow, elasticity: {{strategy: live}}, {WORKER}}}",
            "elasticity.strategy",
            "pytorch or ray",
        ),
        (
            f"{{framework: custom, elasticity: {{strategy: restart}}, data: {{sharding: proportional}}, {WORKER}}}",
            "data.sharding",
            "is for strategy live, not restart",
        ),
        # the watch
        (
            f"{{framework: tensorflow, monitor: {{lowerLR: 0.1}}, {WORKER}}}",
            "monitor",
            "is for strategy live, not fixed",
        ),
        (
            f"{{framework: pytorch, {WORKER}, {LIVE}, monitor: {{evaluate: {{epochs: 1, steps: 9}}}}}}",
            "monitor.evaluate.steps",
            "cannot stand beside epochs",
        ),
        (
            f"{{framework: pytorch, {WORKER}, {LIVE}, monitor: {{evaluate: {{earlyStop: {{}}}}}}}}",
            "monitor.evaluate.metric",
            "earlyStop goes by it",
        ),
        # the batch
        (f"{{elasticity: {{batch: {{global: 8, perWorker: 2}}}}, {WORKER}}}", "elasticity.batch.perWorker", "linear"),
        (f"{{elasticity: {{batch: {{rule: linear}}}}, {WORKER}}}", "elasticity.batch.perWorker", "is missing"),
        (
            f"{{elasticity: {{batch: {{rule: sqrt, perWorker: 4, min: 9, max: 8}}}}, {WORKER}}}",
            "elasticity.batch.min",
            "at most 8",
        ),
        # the gang
        ("roles: {worker: {replicas: 2, min: 3}}", "roles.worker.min", "more than replicas 2"),
        ("{minPods: 3, roles: {worker: {replicas: 2}}}", "minPods", "from 2"),
        ("{minPods: 1, roles: {a: {replicas: 2, min: 1}, b: {replicas: 1}}}", "minPods", "from 2"),
        # order and end
        ("roles: {a: {replicas: 1, dependsOn: [b]}}", "roles.a.dependsOn[0]", "there is no role b"),
        ("roles: {a: {replicas: 1, dependsOn: [a]}}", "roles.a.dependsOn[0]", "the role itself"),
        (
            "roles: {a: {replicas: 1, dependsOn: [b]}, b: {replicas: 1, dependsOn: [a]}}",
            "roles.a.dependsOn",
            "a -> b -> a",
        ),
        (
            "{elasticity: {strategy: restart}, roles: {worker: {replicas: 2, success: false}}}",
            "roles.worker.success",
            "would never end",
        ),
        # environment and volumes
        (f"{{env: {{A: {{}}}}, {WORKER}}}", "env.A", "has none of them"),
        (f"{{envFrom: [{{prefix: A}}], {WORKER}}}", "envFrom[0]", "exactly one of secretRef, configMapRef"),
        (f"{{volumes: {{v: {{mount: /v}}}}, {WORKER}}}", "volumes.v", "exactly one of claim"),
        (f"{{volumes: {{kfp-volcano-x: {{mount: /v, claim: c}}}}, {WORKER}}}", "volumes.kfp-volcano-x", "takes itself"),
        (f"{{volumes: {{v: {{mount: /v, claim: c, subPath: a/../b}}}}, {WORKER}}}", "volumes.v.subPath", "leaves"),
        (f"{{volumes: {{v: {{mount: v, claim: c}}}}, {WORKER}}}", "volumes.v.mount", "not a valid path"),
        (
            "{volumes: {v: {mount: /v, claim: c}}, roles: {a: {replicas: 1, volumes: {w: {mount: /v/, claim: d}}}}}",
            "roles.a.volumes.w.mount",
            "already the mount of v",
        ),
        # Kubernetes' own words
        (
            f"{{pod: {{securityContext: {{runAsUser: root}}}}, {WORKER}}}",
            "pod.securityContext.runAsUser",
            "whole number",
        ),
        (f"{{pod: {{securityContext: {{runAsUsr: 1}}}}, {WORKER}}}", "pod.securityContext.runAsUsr", "runAsUser?"),
        (
            f"{{placement: {{affinity: {{nodeAffinity: []}}}}, {WORKER}}}",
            "placement.affinity.nodeAffinity",
            "a mapping",
        ),
        (f"{{podPatch: {{spec: {{hostNetwrk: true}}}}, {WORKER}}}", "podPatch.spec.hostNetwrk", "hostNetwork?"),
        (
            f"{{podPatch: {{spec: {{containers: [{{image: x}}]}}}}, {WORKER}}}",
            "podPatch.spec.containers[0].name",
            "missing",
        ),
        (
            f"{{podPatch: {{spec: {{containers: [{{name: main}}]}}}}, {WORKER}}}",
            "podPatch.spec.containers[0].image",
            "main is another container (the training's container is called worker)",
        ),
        # Kubernetes' rules for them: fields by themselves
        (patched("dnsPolicy: Nearest"), "podPatch.spec.dnsPolicy", 'no "Nearest"'),
        (patched("priority: 5"), "podPatch.spec.priority", "comes from the PriorityClass"),
        (
            patched("containers: [{name: worker, ports: [{containerPort: 0}]}]"),
            "podPatch.spec.containers[0].ports[0].containerPort",
            "at least 1",
        ),
        # and together, also with what the spec says in its own words
        (
            patched("containers: [{name: worker, volumeMounts: [{name: w, mountPath: /w}]}]"),
            "podPatch.spec.containers[0].volumeMounts[0].name",
            "there is no volume w",
        ),
        (
            patched("volumes: [{name: v, emptyDir: {}}]", "volumes: {v: {claim: c, mount: /v}}"),
            "podPatch.spec.volumes[0]",
            "persistentVolumeClaim and emptyDir",
        ),
        (patched("containers: [{name: worker, $patch: delete}]"), "podPatch.spec.containers", "has no worker"),
        (
            patched("containers: [{name: worker, resources: {limits: {cpu: 1}}}]"),
            "podPatch.spec.containers[0].resources.limits",
            "the role's resources",
        ),
        (
            f"{{podPatch: {{metadata: {{annotations: {{volcano.sh/preemptable: 'true'}}}}}}, {WORKER}}}",
            'podPatch.metadata.annotations["volcano.sh/preemptable"]',
            "others set",
        ),
        (
            f"{{pod: {{securityContext: {{seccompProfile: {{type: Localhost}}}}}}, {WORKER}}}",
            "pod.securityContext.seccompProfile.localhostProfile",
            "Localhost",
        ),
        (
            f"{{placement: {{affinity: {{nodeAffinity: {{{REQUIRED}: {NO_VALUES}}}}}}}, {WORKER}}}",
            f"placement.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values",
            "needs values",
        ),
        # placement
        (f"{{placement: {{topology: {{mode: hard}}}}, {WORKER}}}", "placement.topology.tier", "is missing"),
        (f"{{placement: {{topology: {{tier: 1, tierName: a}}}}, {WORKER}}}", "placement.topology", "one of them"),
        (
            "roles: {worker: {replicas: 1, placement: {topology: {tier: 1}}}}",
            "roles.worker.placement.topology",
            "whole Job",
        ),
        (f"{{placement: {{tolerations: [{{value: a}}]}}, {WORKER}}}", "placement.tolerations[0].key", "Exists"),
        (
            f"{{placement: {{tolerations: [{{operator: Exists, value: a}}]}}, {WORKER}}}",
            "placement.tolerations[0].value",
            "operator Equal",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {reserved: true, cpu: 500m}, placement: {numa: restricted}}}",
            "roles.worker.resources.cpu",
            "no whole number",
        ),
        (
            "roles: {worker: {replicas: 1, placement: {numa: restricted}}}",
            "roles.worker.resources.reserved",
            "reserved",
        ),
        # resources
        ("roles: {worker: {replicas: 1, resources: {gpuShare: {cores: 5}}}}", "roles.worker.resources.gpu", "gpu: 1"),
        (
            "roles: {worker: {replicas: 1, resources: {gpu: 1, gpuShare: {memory: 1k}}}}",
            "roles.worker.resources.gpuShare.memory",
            "whole MiB",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {hugepages: {2Mi: 3Mi}}}}",
            'roles.worker.resources.hugepages["2Mi"]',
            "page",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {extra: {nvidia.com/gpu: 1}}}}",
            'roles.worker.resources.extra["nvidia.com/gpu"]',
            "resources.gpu",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {extra: {a.b/c: 500m}}}}",
            'roles.worker.resources.extra["a.b/c"]',
            "no whole number",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {cpu: 2, limits: {cpu: 1}}}}",
            "roles.worker.resources.limits.cpu",
            "less",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {profile: huge}}}",
            "roles.worker.resources.profile",
            "no profile huge",
        ),
        # devices
        (f"{{placement: {{devices: {{joint: [gpu, rdma]}}}}, {WORKER}}}", "placement.devices", "no role asks"),
        (
            "roles: {worker: {replicas: 1, resources: {gpu: 1}, placement: {devices: {joint: [gpu, rdma]}}}}",
            "roles.worker.resources.rdma",
            "is missing",
        ),
        (
            "roles: {worker: {replicas: 1, resources: {gpu: 3, rdma: 2}, placement: {devices: {joint: [gpu, rdma]}}}}",
            "roles.worker.resources.gpu",
            "evenly",
        ),
        (
            "roles: {a: {replicas: 1, resources: {gpu: 1}, placement: {devices: {joint: [gpu], via: plugin}}}}",
            "roles.a.placement.devices.via",
            "PCIe root",
        ),
        # faults
        (f"{{faults: {{failed: fail, evicted: replace}}, {WORKER}}}", "faults.evicted", "has failed too"),
        (
            f"{{elasticity: {{strategy: restart}}, faults: {{evicted: restartJob}}, {WORKER}}}",
            "faults.evicted",
            "scale-down",
        ),
        (
            f"{{elasticity: {{strategy: restart}}, faults: {{failed: restartJob}}, {WORKER}}}",
            "faults.failed",
            "scale-down",
        ),
        (
            f"{{elasticity: {{strategy: fixed, agent: {{image: x}}}}, {WORKER}}}",
            "elasticity.agent",
            "strategy: restart",
        ),
        (f"{{faults: {{pending: {{after: 0s}}}}, {WORKER}}}", "faults.pending.after", "at least 1s"),
        (f"{{faults: {{hang: 10ms}}, {WORKER}}}", "faults.hang", "at least 1s"),
        (f"{{elasticity: {{strategy: restart}}, faults: {{hang: 1m}}, {WORKER}}}", "faults.hang", "live"),
        (f"{{elasticity: {{strategy: restart}}, faults: {{straggler: {{}}}}, {WORKER}}}", "faults.straggler", "live"),
    ],
)
def test_each_rule_is_told_at_its_place(text, where, words):
    """The path is that of the value to change, the words say what would be right."""
    found = problems(text)
    assert list(found) == [where]
    assert words in found[where]


def test_an_annotation_of_others_is_refused():
    """What Volcano and kfp-volcano read of a Job is theirs, but for what Volcano offers to users."""
    assert (
        "others set"
        in problems(WORKER, annotations={"volcano.sh/preemptable": "true"})[
            'metadata.annotations["volcano.sh/preemptable"]'
        ]
    )
    assert problems(WORKER, annotations={"volcano.sh/cooldown-time": "5m", "a": "b"}) == {}


@pytest.mark.parametrize("framework", ["mpi", "ray"])
def test_a_program_that_is_started_by_ours_has_to_be_known(framework):
    """Without a command there is nothing to start once the peers are there."""
    lead = {"mpi": "launcher", "ray": "head"}[framework]
    text = f"{{framework: {framework}, command: null, roles: {{{lead}: {{replicas: 1}}, worker: {{replicas: 1}}}}}}"
    spec = yaml.safe_load(text)
    del spec["command"]
    value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}}
    found = check_known({**value, "spec": {"image": "x", "queue": "q", **spec}})
    assert [problem.path for problem in found] == [f"spec.roles.{lead}.command"]


def test_devices_that_are_not_known_yet_are_no_problem():
    """A count that a pipeline parameter gives may be whatever is right."""
    role = {
        "replicas": 1,
        "resources": {"gpu": Unknown(), "rdma": 1},
        "placement": {"devices": {"joint": ["gpu", "rdma"]}},
    }
    value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}}
    spec = {"framework": "custom", "image": "x", "command": ["x"], "queue": "q", "roles": {"worker": role}}
    assert check_known({**value, "spec": spec}) == []
