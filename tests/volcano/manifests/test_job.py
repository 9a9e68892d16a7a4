# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.surroundings import Surroundings
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.training_job import RuntimeSettings
from kfp_volcano.schemas.validation import parse, spec_hash, to_wire, training_job
from kfp_volcano.volcano.manifests.frameworks import task_of
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

HOSTILE = st.sampled_from(
    [
        '"',
        "'",
        "\\",
        "\n",
        "\r\n",
        "\t",
        "{{ 7 * 7 }}",
        "{% raw %}",
        "{# #}",
        "$(KFP_VOLCANO_JOB)",
        "---",
        "...",
        "- a",
        "a: b",
        "# no",
        "&a",
        "*a",
        "!!python/name:os.system",
        "|",
        ">",
        "%YAML",
        "\u2028",
        "\x85",
        "\x7f",
        "\ufeff",
        "\ufffe",
        "\U0001f600",
        "\\ud83d\\ude00",
        "<b>&'",
        "null",
        "yes",
        "1e3",
        "x" * 5000,
    ]
)
TEXT = HOSTILE | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
WORD = st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=20).filter(
    lambda text: not re.search(r"\s", text)
)
LABEL = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ENV = st.dictionaries(st.from_regex(r"[A-JL-Z_][A-Z0-9_]{0,10}", fullmatch=True), TEXT, max_size=3)
COMMAND = st.builds(lambda first, rest: [first, *rest], TEXT.filter(bool), st.lists(TEXT, max_size=3))
DURATION = st.sampled_from(["1s", "1.5s", "90s", "5m", "1h30m", 7, 0.25 + 1])
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([1, "500m", 0.25, "8"]),
        "memory": st.sampled_from(["1Gi", "512Mi", 1 << 30, "1e9"]),
        "gpu": st.integers(0, 16),
    },
)


few = settings(max_examples=max(1, settings.default.max_examples // 3))
"""For laws that look at the same manifests from different sides."""


@st.composite
def ranges(draw):
    """Replicas of an elastic worker."""
    least = draw(st.integers(1, 40))
    most = draw(st.integers(least + 1, 60))
    sizes = draw(st.none() | st.sets(st.integers(least, most)).map(lambda sizes: sorted(sizes | {least})))
    initial = draw(st.none() | (st.sampled_from(sizes) if sizes else st.integers(least, most)))
    value = {"min": least, "max": most, "initial": initial, "sizes": sizes}
    return {key: part for key, part in value.items() if part is not None}


def optional(**parts):
    """A mapping that has some of the keys."""
    return st.fixed_dictionaries({}, optional=parts)


KEY_REF = st.fixed_dictionaries({"name": LABEL, "key": LABEL}, optional={"optional": st.booleans()})
VALUE = (
    TEXT
    | st.builds(lambda ref: {"secretKeyRef": ref}, KEY_REF)
    | st.builds(lambda ref: {"configMapKeyRef": ref}, KEY_REF)
    | st.just({"fieldRef": {"fieldPath": "status.hostIP"}})
    | st.just({"resourceFieldRef": {"resource": "limits.cpu"}})
)
RICH_ENV = st.dictionaries(st.from_regex(r"[A-JL-Z_][A-Z0-9_]{0,10}", fullmatch=True), VALUE, max_size=3)
ENV_FROM = st.lists(
    st.builds(lambda kind, name: {kind: {"name": name}}, st.sampled_from(["secretRef", "configMapRef"]), LABEL),
    max_size=2,
)
SOURCE = st.sampled_from(
    [
        {"claim": "data"},
        {"emptyDir": {"size": "1Gi"}},
        {"emptyDir": {"medium": "Memory"}},
        {"emptyDir": {}},
        {"configMap": {"name": "c", "items": {"k": "a/b"}, "mode": 256}},
        {"secret": {"name": "s", "optional": True}},
        {"hostPath": {"path": "/mnt/x", "type": "Directory"}},
    ]
)
POD = optional(
    serviceAccount=LABEL,
    token=st.booleans(),
    imagePullSecrets=st.lists(LABEL, max_size=2, unique=True),
    imagePullPolicy=st.sampled_from(["Always", "Never"]),
    securityContext=st.just({"runAsUser": 1000, "fsGroup": 5}),
    containerSecurityContext=st.just({"capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}}),
)
EXPRESSION = {"key": "a", "operator": "In", "values": ["b"]}
PLACEMENT = optional(
    arch=st.lists(st.sampled_from(["amd64", "arm64"]), min_size=1, unique=True),
    nodes=st.dictionaries(LABEL, LABEL | st.lists(LABEL, min_size=1, max_size=3, unique=True), max_size=2),
    nodeSelector=st.dictionaries(LABEL, LABEL, max_size=2),
    tolerations=st.lists(
        st.sampled_from(
            [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}]
        ),
        max_size=2,
    ),
    affinity=st.sampled_from(
        [
            {"podAntiAffinity": {}},
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [EXPRESSION]},
                            {"matchFields": [{**EXPRESSION, "key": "metadata.name"}]},
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
                }
            },
        ]
    ),
)
PATCH = optional(
    metadata=st.builds(lambda text: {"annotations": {"note": text}}, TEXT),
    spec=st.builds(lambda text: {"hostNetwork": True, "hostAliases": [{"ip": "1.2.3.4", "hostnames": [text]}]}, LABEL),
)
PREFLIGHT = COMMAND | st.fixed_dictionaries({"command": COMMAND}, optional={"image": WORD, "timeout": DURATION})
FRAMEWORKS = {
    "pytorch": (["live", "restart", "fixed"], ["worker"], ["evaluator", "reader", "zoo"]),
    "tensorflow": (["restart", "fixed"], ["worker"], ["chief", "ps", "evaluator"]),
    "mpi": (["restart", "fixed"], ["launcher", "worker"], []),
    "ray": (["live", "fixed"], ["head", "worker"], []),
    "custom": (["restart", "fixed"], [], ["worker", "master", "server"]),
}
ALONE = ("launcher", "head", "chief", "evaluator")


@st.composite
def volumes(draw, folder):
    """Volumes below a folder of their own."""
    names_ = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=2))
    return {
        name: {"mount": f"/{folder}/{name}", **draw(SOURCE), **draw(optional(readOnly=st.booleans(), subPath=LABEL))}
        for name in names_
    }


@st.composite
def common(draw, folder):
    """What a spec and a role may both say."""
    parts = draw(optional(env=RICH_ENV, envFrom=ENV_FROM, pod=POD, placement=PLACEMENT, podPatch=PATCH))
    return {**parts, "volumes": draw(volumes(folder))} if draw(st.booleans()) else parts


@st.composite
def resources(draw):
    """Resources that a pod can have."""
    asked = draw(RESOURCES)
    asked |= draw(
        optional(
            rdma=st.integers(0, 4),
            shm=st.just("1Gi"),
            hugepages=st.just({"2Mi": "4Mi"}),
            extra=st.just({"amd.com/gpu": 1, "ephemeral-storage": "1Gi"}),
            reserved=st.booleans(),
        )
    )
    if asked.get("gpu") and draw(st.booleans()):
        asked["gpuShare"] = draw(optional(memory=st.just("2Gi"), cores=st.integers(1, 100)))
    if not asked.get("reserved") and draw(st.booleans()):
        asked["limits"] = {"memory": "2Gi"}
    return asked


@st.composite
def faults(draw, strategy, grace):
    """What failures may lead to under a strategy."""
    said = draw(
        optional(
            retries=st.integers(1, 9),
            timeout=DURATION,
            keepFor=DURATION | st.just("forever"),
            preflight=PREFLIGHT,
            failed=st.sampled_from(["retry", "fail"] if strategy != "fixed" else ["retry", "fail", "restartJob"]),
            pending=st.fixed_dictionaries({"after": DURATION}, optional={"then": st.sampled_from(["fail", "abort"])}),
        )
    )
    if strategy == "fixed" and said.get("failed", "retry") == "retry":
        said |= draw(optional(evicted=st.sampled_from(["replace", "restartJob", "fail"])))
    if grace and draw(st.booleans()):
        said["cleanup"] = draw(COMMAND)
    return said


@st.composite
def specs(draw):
    """Specs that validate, with hostile text wherever free text may stand."""
    framework = draw(st.sampled_from(sorted(FRAMEWORKS)))
    strategies, needed, others = FRAMEWORKS[framework]
    strategy = draw(st.sampled_from(strategies))
    chosen = [*needed, *draw(st.lists(st.sampled_from(others), unique=True))] if others else needed
    roles = {}
    for name in chosen or ["master"]:
        count = st.just(1) if name in ALONE else st.integers(1, 9)
        replicas = draw(ranges() | count if name == "worker" and strategy != "fixed" else count)
        role = {"replicas": replicas, **draw(common(f"role-{name}"))}
        role |= draw(optional(command=COMMAND, args=st.lists(TEXT, max_size=2), image=WORD, resources=resources()))
        if isinstance(replicas, int) and draw(st.booleans()):
            role["min"] = draw(st.integers(1, replicas))
        if strategy != "live" and draw(st.booleans()):
            role["procs"] = draw(st.integers(1, 8))
        roles[name] = role
    grace = draw(st.booleans())
    spec = {
        "framework": framework,
        "image": draw(WORD),
        "command": draw(COMMAND),
        "queue": draw(LABEL),
        "roles": roles,
        "elasticity": {
            "strategy": strategy,
            **({"grace": "10m"} if grace else {}),
            **draw(
                optional(
                    cooldown=DURATION,
                    batch=st.sampled_from([{"global": 64}, {"rule": "sqrt", "perWorker": 8, "baseWorkers": 2}]),
                )
            ),
            **(draw(optional(agent=st.fixed_dictionaries({"image": WORD}))) if strategy == "restart" else {}),
        },
        "faults": draw(faults(strategy, grace)),
        **draw(common("spec")),
        **draw(optional(priority=LABEL, args=st.lists(TEXT, max_size=2))),
    }
    if draw(st.booleans()):
        spec.setdefault("placement", {})["topology"] = {"tier": 1}
    if strategy == "live" or draw(st.booleans()):
        spec["checkpoint"] = {"volume": draw(LABEL), "every": draw(DURATION)}
    metadata = draw(
        st.fixed_dictionaries(
            {"name": NAME},
            optional={
                "namespace": LABEL,
                "labels": st.dictionaries(LABEL, LABEL),
                "annotations": st.dictionaries(LABEL, TEXT, max_size=2),
            },
        )
    )
    return {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


@st.composite
def rendered(draw):
    """A TrainingJob and a Job of it."""
    job = training_job(draw(specs()))
    run, step = draw(TEXT), draw(TEXT)
    start = draw(st.integers(job.workers.replicas.min, job.workers.replicas.max))
    return job, job_manifest(job, name=names.job_name(job.name, run), run_id=run, step=step, workers=start), start


@given(specs())
def test_reading_the_wire_form_gives_the_job_back(spec):
    """`training_job` undoes `to_wire`, also after a journey as JSON and as YAML."""
    job = training_job(spec)
    wire = to_wire(job)
    assert training_job(wire) == job
    assert training_job(parse(json.dumps(wire))) == job
    assert training_job(parse(manifest_yaml([wire]))) == job


@given(rendered())
def test_what_validates_renders_to_what_volcano_takes(strict_job, case):
    """Every valid spec gives a Job that the schema in Volcano's CRD accepts, without an unknown key."""
    strict_job.validate(case[1])


@few
@given(rendered())
def test_the_gang_is_what_the_job_cannot_run_without(case):
    """The Job's minAvailable is the sum over its tasks: coordinator, core and the other roles, never the surplus."""
    job, manifest, start = case
    tasks = {task["name"]: task for task in manifest["spec"]["tasks"]}
    assert manifest["spec"]["minAvailable"] == sum(task["minAvailable"] for task in tasks.values())
    assert tasks["core"]["replicas"] == job.workers.replicas.min
    assert tasks["core"]["minAvailable"] == (job.workers.min or job.workers.replicas.min)
    assert workers(manifest) == start
    assert ("elastic" in tasks) == job.elastic
    assert ("coordinator" in tasks) == (job.elasticity.strategy != "fixed")
    assert tasks.get("elastic", {"minAvailable": 0})["minAvailable"] == 0
    for name, task in tasks.items():
        preemptable = task["template"]["metadata"]["annotations"]["volcano.sh/preemptable"]
        assert preemptable == ("true" if name == "elastic" else "false")


@few
@given(rendered())
def test_no_policy_fires_on_a_scale_down(case):
    """A Job that may resize says nothing about pods that are deleted; only what never changes in size completes it."""
    job, manifest, _ = case
    events = {policy["event"] for policy in manifest["spec"]["policies"]}
    if job.elasticity.strategy != "fixed":
        assert manifest["spec"]["policies"] == [{"event": "TaskFailed", "action": "TerminateJob"}]
    assert len(events) == len(manifest["spec"]["policies"])
    ends = [task["name"] for task in manifest["spec"]["tasks"] if COMPLETES in task.get("policies", [])]
    assert "elastic" not in ends
    assert ends


@few
@given(rendered())
def test_retries_count_for_the_largest_size(case):
    """Volcano adds up the restarts of a task's pods, so that its limit grows with the most pods it may have.

    A pod whose preflight failed has been started again once when it is moved.
    """
    job, manifest, _ = case
    replicas = job.workers.replicas
    largest = {"coordinator": 1, "core": replicas.min, "elastic": replicas.max - replicas.min}
    largest |= {role.name: role.replicas.max for role in job.roles}
    for task in manifest["spec"]["tasks"]:
        before = task["template"]["spec"].get("initContainers", [])
        examined = names.PREFLIGHT in [container["name"] for container in before]
        often = (job.faults.retries + examined) * largest[task["name"]]
        assert task["maxRetry"] == (1 if job.faults.failed == "fail" else often)


@few
@given(rendered())
def test_the_agent_is_copied_where_it_is_started_from_the_copy(case):
    """And only there: volume, init container, mount and command go together."""
    job, manifest, _ = case
    for task in manifest["spec"]["tasks"]:
        spec = task["template"]["spec"]
        (main,) = spec["containers"]
        copies = {
            any("/kfp-volcano/agent/agent.pyz" in word for word in main.get("command", [])),
            any(mount["mountPath"] == "/kfp-volcano/agent" for mount in main.get("volumeMounts", [])),
            any(volume["name"] == "kfp-volcano-agent" for volume in spec.get("volumes", [])),
            any(container["name"] == "kfp-volcano-agent" for container in spec.get("initContainers", [])),
        }
        assert len(copies) == 1
        assert copies == {False} or job.elasticity.agent
        if copies == {True}:
            assert "kfp_volcano.elastic.agent" not in main["command"]


@few
@given(rendered())
def test_a_pod_has_time_for_its_program_and_for_the_clean_up(case):
    """The clean-up's comes on top, and only where one runs."""
    job, manifest, _ = case
    for task in manifest["spec"]["tasks"]:
        spec = task["template"]["spec"]
        words = spec["containers"][0].get("command", [])
        tidied = job.faults.cleanup and any("clean-up ended" in word for word in words)
        least = job.elasticity.grace_s + (job.faults.cleanup.timeout_s if tidied else 0)
        assert least <= spec["terminationGracePeriodSeconds"] <= least + 7


@few
@given(rendered())
def test_every_name_fits(case):
    """Names of the Job, its Service and all pods it may ever have are at most 63 characters, and DNS labels."""
    job, manifest, _ = case
    name = manifest["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    for task in manifest["spec"]["tasks"]:
        most = max(task["replicas"], job.workers.replicas.max if task["name"] == "elastic" else 1)
        assert len(names.pod_name(name, task["name"], most - 1)) <= 63


@few
@given(rendered())
def test_only_who_asks_and_the_coordinator_has_a_token(case):
    """Training code has no way to the API server unless its spec says so."""
    job, manifest, _ = case
    asked = {task_of(job, role): role.pod.token if role.pod.token is not None else job.pod.token for role in job.roles}
    for task in manifest["spec"]["tasks"]:
        expected = task["name"] == "coordinator" or bool(
            asked.get("core" if task["name"] == "elastic" else task["name"])
        )
        assert task["template"]["spec"]["automountServiceAccountToken"] == expected


@few
@given(rendered())
def test_text_arrives_as_it_was_written(case):
    """Whatever is in a text, it stands in its place in the manifest, to the letter."""
    job, manifest, _ = case
    tasks = {task["name"]: task["template"]["spec"]["containers"][0] for task in manifest["spec"]["tasks"]}
    for role in job.roles:
        container = tasks[task_of(job, role)]
        program = [*(role.command or job.command), *(role.args or (() if role.command else job.args))]
        started_by_us = (job.framework, role.name) in {("mpi", "worker"), ("ray", "worker")}
        if not started_by_us:
            assert container["command"][-len(program) :] == program
        assert container["image"] == (role.image or job.image)
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert len(env) == len(container["env"])
        said = {**job.env, **role.env}
        assert env.items() >= {name: value for name, value in said.items() if isinstance(value, str)}.items()
    annotations = manifest["metadata"]["annotations"]
    assert training_job(json.loads(annotations["kfp-volcano/spec"])) == job
    owner = records.parse(records.Owner, annotations["kfp-volcano/owner"])
    assert owner.spec_hash == spec_hash(job)


def skeleton(value):
    """A manifest's structure: its keys, its lists' lengths, the types of its values."""
    if isinstance(value, dict):
        return {key: skeleton(part) for key, part in value.items()}
    if isinstance(value, list):
        return [skeleton(part) for part in value]
    return type(value)


@given(specs(), TEXT)
def test_no_text_changes_the_structure(spec, hostile):
    """Quotes, newlines, template and YAML syntax in any free text leave keys, lists and types as they are."""

    def with_text(text):
        variant = copy.deepcopy(spec)
        variant["metadata"]["annotations"] = {"note": text}
        variant["spec"]["command"] = [text or "x", text]
        variant["spec"]["args"] = [text]
        variant["spec"]["env"] = {"A": text}
        variant["spec"]["podPatch"] = {"metadata": {"annotations": {"patched": text}}}
        variant["spec"].setdefault("faults", {}).update(preflight=["x", text])
        for role in variant["spec"]["roles"].values():
            role["env"] = {"B": text}
            role["command"] = ["x", text]
            role["args"] = [text]
        job = training_job(variant)
        return job_manifest(job, name="n", run_id=text, step=text, workers=job.workers.replicas.min)

    assert skeleton(with_text(hostile)) == skeleton(with_text("plain"))


@few
@given(specs())
def test_equal_arguments_give_equal_bytes(spec):
    """A manifest depends on its arguments alone, to the byte."""

    def text():
        job = training_job(copy.deepcopy(spec))
        return manifest_yaml([job_manifest(job, name="n", run_id="r", step="s", workers=job.workers.replicas.max)])

    assert text() == text()


COMPLETES = {"event": "TaskCompleted", "action": "CompleteJob"}
SMALL = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "a", "labels": {"kfp-volcano/team": "vision"}},
    "spec": {
        "framework": "pytorch",
        "image": "x",
        "command": ["x"],
        "queue": "q",
        "priority": "low",
        "roles": {"worker": {"replicas": {"min": 2, "max": 4}, "resources": {"gpu": 2}}, "reader": {"replicas": 1}},
        "elasticity": {"grace": "1.5s"},
        "checkpoint": {"volume": "v"},
        "faults": {"keepFor": "90.5s"},
    },
}


def small(**changes):
    """The Job of a small spec."""
    job = training_job(SMALL)
    return job_manifest(job, **{"name": "a-1", "run_id": "r", "step": "submit", "workers": 3, **changes})


def container(manifest, name):
    """The container of a task, and its pod."""
    pod = next(task for task in manifest["spec"]["tasks"] if task["name"] == name)["template"]["spec"]
    return pod["containers"][0], pod


@pytest.mark.parametrize("start", [1, 5])
def test_a_start_outside_the_range_is_refused(start):
    """No Job starts below its gang or above its most."""
    with pytest.raises(SpecError, match=rf"workers: {start} is outside min..max \(from 2 to 4\)"):
        small(workers=start)


def test_a_name_too_long_for_its_pods_is_refused():
    """The message names the pods, all of them at once."""
    with pytest.raises(SpecError) as caught:
        small(name="n" * 60, workers=9)
    text = str(caught.value)
    for word in ("-coordinator-0", "-core-1", "-elastic-1", "-reader-0", "workers: 9"):
        assert word in text


def test_the_surplus_has_a_priority_below_the_gang():
    """Where a priority is given the surplus has its lower companion; Volcano takes it first, and it waits last."""
    manifest = small()
    assert manifest["spec"]["priorityClassName"] == "low"
    assert container(manifest, "elastic")[1]["priorityClassName"] == "low-surplus"
    assert "priorityClassName" not in container(manifest, "core")[1]


def test_gpus_are_limited_and_the_coordinator_has_none():
    """A GPU's limit equals its request; cpu and memory are requested only."""
    manifest = small()
    assert container(manifest, "core")[0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert container(manifest, "coordinator")[0]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


def test_training_learns_how_its_batch_follows_the_workers():
    """The rule and its sizes arrive as they are in the spec, with the most workers there may be."""
    batch = {"global": 64, "rule": "adam-sde", "perWorker": 32, "max": 256, "sizes": [64, 128, 256], "ramp": 1000}
    spec = copy.deepcopy(SMALL)
    spec["spec"]["elasticity"] = {**spec["spec"].get("elasticity", {}), "batch": batch}
    job = training_job(spec)
    assert to_wire(job)["spec"]["elasticity"]["batch"] == batch
    manifest = job_manifest(job, name="a-1", run_id="r", step="submit", workers=3)
    entries = {entry["name"]: entry for entry in container(manifest, "elastic")[0]["env"]}
    here = Surroundings.read({"KFP_VOLCANO_ELASTICITY": entries["KFP_VOLCANO_ELASTICITY"]["value"]})
    assert replace(here.settings.scaling, size=here.settings.batch) == job.elasticity.batch
    assert here.settings.workers == job.workers.replicas.max


def test_training_learns_what_to_watch():
    """All of it arrives as it is in the spec, and nothing where the spec says nothing."""
    watching = {
        "loss": {"spike": 4.0, "window": 30, "steps": 2, "then": "rollback"},
        "rollback": {"limit": 2, "then": "skip"},
        "lowerLR": 0.25,
        "evaluate": {"steps": 50, "metric": "accuracy", "mode": "max", "earlyStop": {"patience": 3, "minDelta": 0.01}},
    }
    spec = copy.deepcopy(SMALL)
    spec["spec"]["monitor"] = watching
    job = training_job(spec)
    assert to_wire(job)["spec"]["monitor"] == watching
    manifest = job_manifest(job, name="a-1", run_id="r", step="submit", workers=3)
    entries = {entry["name"]: entry for entry in container(manifest, "elastic")[0]["env"]}
    here = Surroundings.read({"KFP_VOLCANO_ELASTICITY": entries["KFP_VOLCANO_ELASTICITY"]["value"]})
    assert here.settings.monitor == job.monitor
    assert (
        "monitor"
        not in {entry["name"]: entry for entry in container(small(), "elastic")[0]["env"]}["KFP_VOLCANO_ELASTICITY"][
            "value"
        ]
    )


def test_fractions_of_a_second_are_rounded_up():
    """Kubernetes counts whole seconds; nobody gets less than asked for."""
    manifest = small()
    assert container(manifest, "core")[1]["terminationGracePeriodSeconds"] == 2
    assert manifest["spec"]["ttlSecondsAfterFinished"] == 91


def test_pods_learn_where_they_are():
    """The environment names the Job, the pod, the coordinator and the Job's own folder on the volume."""
    entries = {entry["name"]: entry for entry in container(small(), "elastic")[0]["env"]}
    values = {name: entry["value"] for name, entry in entries.items() if "value" in entry}
    assert RuntimeSettings(**json.loads(values.pop("KFP_VOLCANO_ELASTICITY"))) == RuntimeSettings(grace_s=1.5)
    assert values == {
        "KFP_VOLCANO_JOB": "default/a-1",
        "KFP_VOLCANO_TASK": "elastic",
        "KFP_VOLCANO_ROLE": "worker",
        "KFP_VOLCANO_FRAMEWORK": "pytorch",
        "GLOO_SOCKET_IFNAME": "lo",
        "PET_LOCAL_ADDR": "$(KFP_VOLCANO_POD_IP)",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "2",
        "PET_STANDALONE": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2",
        "KFP_VOLCANO_PROCS": "2",
        "KFP_VOLCANO_LEADER": "a-1-core-0.a-1",
        "KFP_VOLCANO_COORDINATOR": "a-1-coordinator-0.a-1",
        "KFP_VOLCANO_JOB_DIR": "/kfp-volcano/volume/a-1",
    }
    fields = {
        name: entry["valueFrom"]["fieldRef"]["fieldPath"] for name, entry in entries.items() if "value" not in entry
    }
    assert fields == {
        "KFP_VOLCANO_POD": "metadata.name",
        "KFP_VOLCANO_POD_IP": "status.podIP",
        "KFP_VOLCANO_NODE": "spec.nodeName",
        "KFP_VOLCANO_TASK_INDEX": "metadata.labels['volcano.sh/task-index']",
    }


def test_labels_find_the_job_and_its_pods():
    """The run's label and the team are on the Job and on every pod."""
    manifest = small()
    wanted = {"kfp-volcano/run": names.run_label("r"), "kfp-volcano/team": "vision"}.items()
    for metadata in [manifest["metadata"], *(task["template"]["metadata"] for task in manifest["spec"]["tasks"])]:
        assert metadata["labels"].items() >= wanted


def test_istio_keeps_out_of_training_pods_unless_the_spec_wants_it():
    """Also in a Kubeflow profile's namespace, where each pod is given a proxy."""
    key = "sidecar.istio.io/inject"
    for wanted, metadata in (("false", {}), ("true", {"labels": {key: "true"}, "annotations": {key: "true"}})):
        job = training_job({**SMALL, "metadata": {**SMALL["metadata"], **metadata}})
        for task in job_manifest(job, name="a-1", run_id="r", step="submit", workers=3)["spec"]["tasks"]:
            pod = task["template"]["metadata"]
            assert (pod["labels"][key], pod["annotations"][key]) == (wanted, wanted)
