# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.training_job import Replicas, Resources
from kfp_volcano.schemas.validation import Unknown, check_known, parse, spec_hash, to_wire, training_job

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "pipelines/examples/digits/job.yaml"

SPEC = yaml.safe_load("""
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: resnet, namespace: vision}
spec:
  framework: pytorch
  image: registry.example/train:1.4
  command: [python, train.py]
  queue: research
  roles:
    worker:
      replicas: {min: 2, max: 8, initial: 4, sizes: [2, 4, 6, 8]}
      resources: {cpu: 8, memory: 32Gi, gpu: 1}
  elasticity: {strategy: live, batch: {global: 512, rule: constant}, cooldown: 60s, grace: 60s}
  data: {sharding: uniform}
  checkpoint: {volume: checkpoints, every: 5m, keep: 3}
  faults: {retries: 3, timeout: 24h, keepFor: 1h}
""")
REMOVED = object()


def changed(path, value, spec=SPEC):
    """The spec with the value at a dotted path replaced, added, or removed."""
    result = copy.deepcopy(spec)
    *parents, last = path.split("/")
    place = result
    for part in parents:
        place = place.setdefault(part, {})
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return result


def problems(spec, **options):
    """Every problem of a spec as (path, message, remedy)."""
    with pytest.raises(SpecError) as caught:
        training_job(spec, **options)
    return {problem.path: f"{problem.message} | {problem.remedy}" for problem in caught.value.problems}


def test_a_spec_becomes_typed_values():
    """Durations are seconds, quantities text, ranges sorted."""
    job = training_job(SPEC)
    assert job.workers.replicas == Replicas(min=2, max=8, initial=4, sizes=(2, 4, 6, 8))
    assert job.workers.resources == Resources(cpu="8", memory="32Gi", gpu=1)
    assert (job.elasticity.cooldown_s, job.checkpoint.every_s, job.faults.timeout_s) == (60, 300, 86400)
    assert job.elastic


def test_the_example_is_valid_and_names_its_schema():
    """The digits example passes the check, and its first line leads an editor to the schema."""
    text = EXAMPLE.read_text()
    job = training_job(parse(text))
    assert (job.name, job.namespace, job.queue, job.elasticity.strategy) == ("digits", "vision", "research", "live")
    schema = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (EXAMPLE.parent / schema).resolve() == ROOT / "schemas/json/training-job.v1.schema.json"


def test_what_is_left_out_has_its_default():
    """A minimal spec: namespace default, every size from min to max, as many workers as possible wished for."""
    spec = {key: SPEC["spec"][key] for key in ("framework", "image", "command", "queue")}
    spec |= {"roles": {"worker": {"replicas": {"min": 1, "max": 3}}}, "checkpoint": {"volume": "v"}}
    job = training_job({"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}, "spec": spec})
    assert job.namespace == "default"
    assert job.workers.replicas == Replicas(min=1, max=3, initial=3, sizes=(1, 2, 3))
    assert job.elasticity.strategy == "live"


def test_a_number_of_replicas_is_a_fixed_size():
    """A plain number is min and max at once, and nothing resizes."""
    job = training_job(changed("spec/roles/worker/replicas", 4))
    assert job.workers.replicas == Replicas(min=4, max=4, initial=4, sizes=(4,))
    assert not job.elastic


def test_custom_code_is_fixed_unless_it_says_otherwise():
    """Only PyTorch code can use the live runtime, so that `custom` defaults to a fixed size, and needs no volume."""
    spec = changed("spec/framework", "custom")
    for key in ("elasticity", "checkpoint"):
        spec = changed(f"spec/{key}", REMOVED, spec)
    spec = changed("spec/roles/worker/replicas", 2, spec)
    assert training_job(spec).elasticity.strategy == "fixed"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        # keys
        ("spec/elastcity", {}, "unknown key | did you mean elasticity?"),
        ("Kind", "x", "unknown key | did you mean kind?"),
        ("spec/roles/worker/resources/tpu", 1, "did you mean gpu?"),
        (
            "spec/faults/zzz",
            1,
            "there is retries, failed, evicted, straggler, hang, pending, preflight, cleanup, timeout, keepFor",
        ),
        ("spec/queue", REMOVED, "is missing | Volcano queue"),
        ("spec/roles", REMOVED, "is missing"),
        ("spec", REMOVED, "is missing"),
        # values of an enumeration
        ("apiVersion", "kfp-volcano/v2", "this version of kfp-volcano reads kfp-volcano/v1"),
        ("kind", "Job", "reads TrainingJob"),
        ("spec/framework", "pytroch", 'there is no "pytroch" | did you mean pytorch?'),
        ("spec/elasticity/batch/rule", "cubic", 'there is no "cubic"'),
        # types
        ("spec/roles/worker/replicas/max", "8", 'whole number, but is text: "8" | without quotes: 8'),
        ("spec/roles/worker/replicas/max", 2.5, "whole number, but is a number: 2.5"),
        ("spec/roles/worker/replicas", [2], "a whole number or a mapping, but is a list"),
        ("spec/command", "python 'a b.py'", 'a list, but is text: "python \'a b.py\'" | write ["python", "a b.py"]'),
        ("spec/command", "python 'a", "for example"),
        ("spec/checkpoint", None, "a mapping, but is nothing"),
        ("spec/checkpoint/every", True, "text or a number, but is true/false"),
        # strings
        ("metadata/name", "ResNet", '"ResNet" is not a valid name'),
        ("metadata/name", "3d-unet", "beginning with a letter"),
        ("metadata/name", "a\n", "is not a valid name"),
        ("metadata/name", "a" * 64, "has 64 characters | at most 63"),
        ("metadata/namespace", "a.b", "is not a valid name"),
        ("spec/queue", "My Queue", "is not a valid name"),
        ("spec/priority", "x" * 246, "at most 245"),
        ("spec/image", "", "is not a valid image"),
        ("spec/image", "a b", "is not a valid image"),
        ("spec/checkpoint/volume", "Vol", "is not a valid name"),
        ("spec/command", [], "is empty | Program and arguments"),
        # quantities and durations
        ("spec/roles/worker/resources/memory", "32GB", '"32GB" is not a valid quantity'),
        ("spec/roles/worker/resources/cpu", 0, "too small | more than 0"),
        ("spec/roles/worker/resources/cpu", "0m", 'no pod can have "0m"'),
        ("spec/roles/worker/resources/memory", "1e99", "no pod can have"),
        ("spec/roles/worker/resources/gpu", -1, "-1 is too small | at least 0"),
        ("spec/elasticity/cooldown", "6 weeks", "not a valid duration"),
        ("spec/elasticity/cooldown", "60", "for example 30s, 5m, 1h"),
        ("spec/elasticity/cooldown", -1, "at least 0"),
        ("spec/elasticity/cooldown", float("nan"), "nan is not a usable number"),
        ("spec/elasticity/grace", "0s", "at least 1s"),
        ("spec/checkpoint/every", 0, "at least 1ms"),
        ("spec/checkpoint/bestMode", "min", "says of no metric which value is the best"),
        ("spec/checkpoint/bestMode", "most", "min"),
        ("spec/checkpoint/url", "bucket/prefix", "not a valid"),
        ("spec/checkpoint/best", "", "is empty"),
        ("spec/faults/timeout", "0s", "at least 1s"),
        ("spec/faults/keepFor", "9999d", "at most ten years"),
        ("spec/faults/keepFor", 1e18, "is too large"),
        ("spec/faults/retries", 0, "at least 1"),
        # sizes
        ("spec/roles/worker/replicas/min", 9, "min 9 is more than max 8 | at most 8"),
        ("spec/roles/worker/replicas/min", 0, "at least 1"),
        ("spec/roles/worker/replicas/max", 10**30, "is too large"),
        ("spec/roles/worker/replicas/initial", 9, "outside min..max | from 2 to 8"),
        ("spec/roles/worker/replicas/initial", 5, "5 is not among the sizes | one of 2, 4, 6, 8"),
        ("spec/roles/worker/replicas/sizes", [4, 8], "lacks min, 2"),
        ("spec/roles/worker/replicas/sizes", [], "is empty"),
        # roles
        ("spec/roles", {}, "is empty"),
        ("spec/roles/core", {"replicas": 1}, "name of a task that kfp-volcano makes"),
        ("spec/roles/elastic", {"replicas": 1}, "name of a task"),
        ("spec/roles/coordinator", {"replicas": 1}, "name of a task"),
        ("spec/roles/Eval", {"replicas": 1}, '"Eval" is not a valid name'),
        ("spec/roles/the-evaluator-role", {"replicas": 1}, "at most 15 characters"),
        # strategy
        ("spec/checkpoint", REMOVED, "strategy live keeps the Job's checkpoints and ledgers on a volume"),
    ],
)
def test_each_problem_is_told_with_its_place_and_remedy(path, value, words):
    """One wrong thing is one problem: at its path, in words, with what would be right."""
    where = path.replace("/", ".")
    found = problems(changed(path, value))
    assert list(found) == [where]
    assert words in found[where]


@pytest.mark.parametrize(
    ("path", "value", "where", "words"),
    [
        ("spec/roles/worker/replicas", {"min": 1}, "spec.roles.worker.replicas.max", "is missing"),
        ("spec/env", {3: "x"}, 'spec.env["3"]', "is a key, but not text"),
        ("spec/env", {"A": 1}, "spec.env.A", 'text or a mapping, but is a whole number: 1 | put it in quotes: "1"'),
        (
            "spec/env",
            {"A": True},
            "spec.env.A",
            'text or a mapping, but is true/false: true | put it in quotes: "true"',
        ),
        ("spec/command", ["python", 3], "spec.command[1]", 'put it in quotes: "3"'),
        ("spec/env", {"A": b"x"}, "spec.env.A", "is binary"),
        ("spec/env", {"A": {1}}, "spec.env.A", "is a set"),
        ("metadata/labels", {"a b": "c"}, 'metadata.labels["a b"]', "not a valid label key"),
        ("metadata/labels", {"a": "-"}, "metadata.labels.a", "not a valid label value"),
        ("metadata/labels", {"volcano.sh/x": "y"}, 'metadata.labels["volcano.sh/x"]', "others set"),
        ("metadata/labels", {"kfp-volcano/run": "y"}, 'metadata.labels["kfp-volcano/run"]', "others set"),
        ("spec/command", [""], "spec.command[0]", "is empty"),
        ("spec/command", ["a\x00"], "spec.command[0]", "NUL"),
        ("spec/env", {"A": "\ud83d"}, "spec.env.A", "lone surrogate"),
        ("spec/env", {"1A": "x"}, 'spec.env["1A"]', "not a valid name of an environment variable"),
        ("spec/env", {"KFP_VOLCANO_JOB": "x"}, "spec.env.KFP_VOLCANO_JOB", "is set by kfp-volcano itself"),
        (
            "spec/roles/worker/env",
            {"KFP_VOLCANO_JOB": "x"},
            "spec.roles.worker.env.KFP_VOLCANO_JOB",
            "is set by kfp-volcano",
        ),
        ("spec/roles/worker/replicas/sizes", [2, 9, 4], "spec.roles.worker.replicas.sizes[1]", "9 is outside min..max"),
        ("spec/roles/worker/replicas/sizes", [2, 4, 4], "spec.roles.worker.replicas.sizes[2]", "4 is there twice"),
        (
            "spec/roles/eval",
            {"replicas": {"min": 1, "max": 2}},
            "spec.roles.eval.replicas",
            "only worker can be resized",
        ),
        ("spec/framework", "custom", "spec.elasticity.strategy", "live needs framework pytorch or ray, not custom"),
        (
            "spec/elasticity/strategy",
            "fixed",
            "spec.roles.worker.replicas",
            "is a range, but strategy fixed never resizes",
        ),
        ("spec/elasticity", {"strategy": 1}, "spec.elasticity.strategy", "should be text"),
    ],
)
def test_a_problem_inside_a_value_is_told_where_it_is(path, value, where, words):
    """The place is the very key or entry of a list, written so that one finds it."""
    found = problems(changed(path, value))
    assert list(found) == [where]
    assert words in found[where]


def test_all_problems_are_told_at_once():
    """Nothing found hides anything else, in whatever layer of the check it is found."""
    spec = changed("spec/roles/worker/replicas", {"min": 9, "max": 8})
    spec = changed("spec/elasticity/cooldown", "soon", spec)
    spec = changed("spec/checkpoint", REMOVED, spec)
    spec = changed("spec/quue", ["x"], spec)
    assert set(problems(spec)) == {
        "spec.roles.worker.replicas.min",
        "spec.elasticity.cooldown",
        "spec.checkpoint",
        "spec.quue",
    }


def test_the_source_is_named_in_the_error():
    """A reader of the error knows which file to open, also when the document as a whole is wrong."""
    with pytest.raises(SpecError) as caught:
        training_job([], source="job.yaml")
    assert str(caught.value).startswith("job.yaml: should be a mapping, but is a list")


def test_a_spec_that_no_annotation_can_hold_is_refused():
    """The spec travels with the Job as an annotation, whose size Kubernetes limits."""
    found = problems(changed("spec/env", {"DATA": "x" * 200_000}))
    assert "bytes long" in found["spec"]


def test_sequences_and_mappings_of_any_type_will_do():
    """A spec made in Python may hold tuples and read-only mappings."""
    spec = changed("spec/command", ("python", "train.py"))
    assert training_job(spec) == training_job(SPEC)


def test_numbers_as_text_are_numbers_only_when_asked_for():
    """Values from pipeline parameters come as text: `lenient_numbers` reads them, where a number is wanted alone."""
    spec = changed("spec/roles/worker/replicas", {"min": "2", "max": "8.0", "sizes": ["2", 4, "8"], "initial": 2})
    spec = changed("spec/roles/worker/resources/gpu", "1", spec)
    spec = changed("spec/elasticity/cooldown", "60", spec)
    spec = changed("spec/env", {"N": "2"}, spec)
    spec = changed("spec/command", ["python", "7"], spec)
    job = training_job(spec, lenient_numbers=True)
    assert job.workers.replicas == Replicas(min=2, max=8, initial=2, sizes=(2, 4, 8))
    assert all(type(size) is int for size in job.workers.replicas.sizes)
    assert (job.workers.resources.gpu, job.elasticity.cooldown_s) == (1, 60.0)
    assert (job.env, job.command) == ({"N": "2"}, ("python", "7"))
    assert len(problems(spec)) == 6


def test_numbers_as_text_stay_wrong_where_they_spell_none():
    """Leniency reads numbers, it does not guess."""
    spec = changed("spec/roles/worker/replicas/max", "eight")
    assert "spec.roles.worker.replicas.max" in problems(spec, lenient_numbers=True)


def leaves(value, path=()):
    """The paths of all values in a spec, inner ones too."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from leaves(value[key], (*path, key))


def replaced(path, value):
    """The spec with another value at the path of one of its leaves."""
    spec = copy.deepcopy(SPEC)
    place = spec
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return spec


@pytest.mark.parametrize("path", list(leaves(SPEC)), ids=lambda path: "/".join(map(str, path)))
def test_a_value_not_known_yet_is_right_everywhere(path):
    """At compile time any value may be a parameter: it is no problem, and it makes none elsewhere."""
    spec = replaced(path, Unknown())
    assert check_known(spec) == []
    assert all("is not known yet" in message for message in problems(spec).values())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(Unknown()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(leaves(SPEC))), ANYTHING, st.booleans())
def test_whatever_is_written_is_either_a_job_or_a_list_of_problems(path, value, lenient):
    """No input makes the check fail by itself; what it finds right becomes a TrainingJob, save for unknown values."""
    spec = replaced(path, value)
    found = check_known(spec, lenient_numbers=lenient)
    told = []
    try:
        training_job(spec, lenient_numbers=lenient)
    except SpecError as error:
        told = error.problems
    assert [problem for problem in told if problem.message != "is not known yet"] == found


def test_a_whole_spec_not_known_yet_is_right():
    """Even the whole document may be an earlier step's output."""
    assert check_known(Unknown()) == []


def test_what_is_known_is_checked_beside_what_is_not():
    """An unknown value hides no problem that does not depend on it."""
    spec = changed(
        "spec/roles/worker/replicas", {"min": Unknown(), "max": 8, "initial": 9, "sizes": [2, Unknown(), 10]}
    )
    spec = changed("spec/image", Unknown(), spec)
    spec = changed("spec/quue", "x", spec)
    assert {problem.path for problem in check_known(spec)} == {
        "spec.roles.worker.replicas.initial",
        "spec.roles.worker.replicas.sizes[2]",
        "spec.quue",
    }


def test_the_wire_form_is_canonical():
    """Specs that differ in writing alone have one wire form and one hash; another spec has another hash."""
    other = changed("spec/elasticity/cooldown", "1m")
    other = changed("spec/roles/worker/resources/cpu", "8", other)
    other = changed("spec/roles/worker/replicas/sizes", [8, 2, 6, 4], other)
    other = changed("spec/data", REMOVED, other)
    assert to_wire(training_job(other)) == to_wire(training_job(SPEC))
    assert spec_hash(training_job(other)) == spec_hash(training_job(SPEC))
    assert spec_hash(training_job(changed("spec/queue", "other"))) != spec_hash(training_job(SPEC))


def test_kept_for_ever_survives_the_wire():
    """`forever` has no length, and comes back as it was."""
    job = training_job(changed("spec/faults/keepFor", "forever"))
    assert job.faults.keep_for_s is None
    assert training_job(to_wire(job)) == job


def test_problems_come_in_the_order_of_the_document():
    """Whatever the hash seed of the process: the keys are gone through as they were written."""
    value = changed("spec/env", dict.fromkeys("ZAMBYC", 1))
    with pytest.raises(SpecError) as caught:
        training_job(value)
    assert [problem.path for problem in caught.value.problems] == [f"spec.env.{name}" for name in "ZAMBYC"]
