from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.training_job import RuntimeSettings
from kfp_volcano.schemas.validation import parse, spec_hash, to_wire, training_job
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml
from kfp_volcano.volcano.manifests.resize import workers

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


@st.composite
def specs(draw):
    """Specs that validate, with hostile text wherever free text may stand."""
    live = draw(st.booleans())

    def role(replicas):
        extras = {"resources": RESOURCES, "command": COMMAND, "env": ENV}
        return draw(st.fixed_dictionaries({"replicas": replicas}, optional=extras))

    count = st.integers(1, 60)
    roles = {"worker": role(ranges() | count if live else count)}
    for name in draw(st.sets(st.sampled_from(["evaluator", "reader", "zoo"]))):
        roles[name] = role(st.integers(1, 9))
    spec = {
        "framework": "pytorch" if live else draw(st.sampled_from(["pytorch", "custom"])),
        "image": draw(WORD),
        "command": draw(COMMAND),
        "queue": draw(LABEL),
        "roles": roles,
        "elasticity": {
            "strategy": "live" if live else "fixed",
            **draw(
                st.fixed_dictionaries(
                    {}, optional={"cooldown": DURATION, "grace": DURATION, "batch": st.just({"global": 64})}
                )
            ),
        },
        "faults": draw(
            st.fixed_dictionaries(
                {},
                optional={"retries": st.integers(1, 9), "timeout": DURATION, "keepFor": DURATION | st.just("forever")},
            )
        ),
    }
    if live or draw(st.booleans()):
        spec["checkpoint"] = {"volume": draw(LABEL), "every": draw(DURATION)}
    spec |= draw(
        st.fixed_dictionaries({}, optional={"priority": LABEL, "env": ENV, "data": st.just({"sharding": "uniform"})})
    )
    metadata = draw(
        st.fixed_dictionaries({"name": NAME}, optional={"namespace": LABEL, "labels": st.dictionaries(LABEL, LABEL)})
    )
    return {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


@st.composite
def rendered(draw):
    """A TrainingJob and a Job of it."""
    job = training_job(draw(specs()))
    run, step = draw(TEXT), draw(TEXT)
    start = draw(st.integers(job.workers.replicas.min, job.workers.replicas.max))
    return job, job_manifest(job, name=names.job_name(job.name, run), run_id=run, step=step, workers=start), start


@pytest.fixture(scope="session")
def crd_validator(job_crd):
    """Volcano's schema of a Job, strict: the API server would drop an unknown key without a word."""

    def strict(schema):
        if isinstance(schema, list):
            return [strict(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        closed = {key: strict(part) for key, part in schema.items()}
        if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
            closed.setdefault("additionalProperties", False)
        return closed

    return Draft202012Validator(strict(job_crd))


@given(specs())
def test_reading_the_wire_form_gives_the_job_back(spec):
    """`training_job` undoes `to_wire`, also after a journey as JSON and as YAML."""
    job = training_job(spec)
    wire = to_wire(job)
    assert training_job(wire) == job
    assert training_job(parse(json.dumps(wire))) == job
    assert training_job(parse(manifest_yaml([wire]))) == job


@given(rendered())
def test_what_validates_renders_to_what_volcano_takes(crd_validator, case):
    """Every valid spec gives a Job that the schema in Volcano's CRD accepts, without an unknown key."""
    crd_validator.validate(case[1])


@few
@given(rendered())
def test_the_gang_is_what_the_job_cannot_run_without(case):
    """The Job's minAvailable is the sum over its tasks: coordinator, core and the other roles, never the surplus."""
    job, manifest, start = case
    tasks = {task["name"]: task for task in manifest["spec"]["tasks"]}
    assert manifest["spec"]["minAvailable"] == sum(task["minAvailable"] for task in tasks.values())
    assert tasks["core"]["replicas"] == tasks["core"]["minAvailable"] == job.workers.replicas.min
    assert workers(manifest) == start
    assert ("elastic" in tasks) == job.elastic
    assert ("coordinator" in tasks) == (job.elasticity.strategy == "live")
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
    """Volcano adds up the restarts of a task's pods, so that its limit grows with the most pods it may have."""
    job, manifest, _ = case
    replicas = job.workers.replicas
    largest = {"coordinator": 1, "core": replicas.min, "elastic": replicas.max - replicas.min}
    largest |= {role.name: role.replicas.max for role in job.roles}
    for task in manifest["spec"]["tasks"]:
        assert task["maxRetry"] == job.faults.retries * largest[task["name"]]


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
def test_only_the_coordinator_has_a_token(case):
    """Training code has no way to the API server."""
    for task in case[1]["spec"]["tasks"]:
        assert task["template"]["spec"]["automountServiceAccountToken"] == (task["name"] == "coordinator")


@few
@given(rendered())
def test_text_arrives_as_it_was_written(case):
    """Whatever is in a text, it stands in its place in the manifest, to the letter."""
    job, manifest, _ = case
    tasks = {task["name"]: task["template"]["spec"]["containers"][0] for task in manifest["spec"]["tasks"]}
    for role in job.roles:
        container = tasks["core" if role.name == "worker" else role.name]
        assert container["command"] == list(role.command or job.command)
        assert container["image"] == job.image
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert len(env) == len(container["env"])
        assert env.items() >= {**job.env, **role.env}.items()
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
        variant["spec"]["command"] = [text or "x", text]
        variant["spec"]["env"] = {"A": text}
        for role in variant["spec"]["roles"].values():
            role["env"] = {"B": text}
            role["command"] = ["x", text]
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
        "KFP_VOLCANO_COORDINATOR": "a-1-coordinator-0.a-1",
        "KFP_VOLCANO_JOB_DIR": "/kfp-volcano/volume/a-1",
    }
    fields = {
        name: entry["valueFrom"]["fieldRef"]["fieldPath"] for name, entry in entries.items() if "value" not in entry
    }
    assert fields == {
        "KFP_VOLCANO_POD": "metadata.name",
        "KFP_VOLCANO_POD_IP": "status.podIP",
        "KFP_VOLCANO_TASK_INDEX": "metadata.labels['volcano.sh/task-index']",
    }


def test_labels_find_the_job_and_its_pods():
    """The run's label and the team are on the Job and on every pod."""
    manifest = small()
    wanted = {"kfp-volcano/run": names.run_label("r"), "kfp-volcano/team": "vision"}.items()
    for metadata in [manifest["metadata"], *(task["template"]["metadata"] for task in manifest["spec"]["tasks"])]:
        assert metadata["labels"].items() >= wanted
