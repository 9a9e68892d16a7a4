# SPDX-License-Identifier: Apache-2.0
"""The types and the JSON Schemas say the same."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import re
import types
import typing
from importlib import resources

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kfp_volcano.schemas import events, monitor, pods, records, training_job
from kfp_volcano.schemas.codec import wire_key
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.structure import child_rule, deviations, load_schema, resolve

NAMES = sorted(
    file.name.removesuffix(".schema.json") for file in resources.files("kfp_volcano.schemas").joinpath("json").iterdir()
)
TRAINING_JOB = load_schema("training-job.v1")
RECORDS = {
    "advice": records.Advice,
    "owner": records.Owner,
    "request": records.ResizeRequest,
    "resize": records.ResizeOutcome,
    "progress": records.Progress,
    "steps": records.StepRecord,
    "hold": records.Hold,
    "moves": records.Move,
    "classes": records.ClassChange,
    "event": events.Event,
    "unfit": records.Unfit,
}
FILLED_IN = {"profile"}
"""Keys that a spec may have and its typed values have not: they were replaced by what they stand for."""


def parts(schema):
    """A schema and every schema in it."""
    yield schema
    for key in ("properties", "$defs"):
        for part in schema.get(key, {}).values():
            yield from parts(part)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key])


def json_types(hint):
    """The JSON types of a field's type, and its values where they are few."""
    if hint is type(None):
        return set(), set()
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        halves = [json_types(part) for part in typing.get_args(hint)]
        return set.union(*(half[0] for half in halves)), set.union(*(half[1] for half in halves))
    if typing.get_origin(hint) is typing.Literal:
        return {"string"}, set(typing.get_args(hint))
    origin = typing.get_origin(hint) or hint
    if issubclass(origin, enum.Enum):
        return {"string"}, {member.value for member in origin}
    if dataclasses.is_dataclass(origin) or origin is dict:
        return {"object"}, set()
    return {{str: "string", bool: "boolean", int: "integer", float: "number", tuple: "array"}[origin]}, set()


def required(field):
    """Whether a value of the type cannot be made without the field."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@pytest.mark.parametrize("name", NAMES)
def test_a_published_schema_is_a_schema(name):
    """Draft 2020-12, with a title and a description."""
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    kind, version = name.rsplit(".", 1)
    assert schema["$id"] == f"urn:kfp-volcano:schema:{kind}:{version}"
    assert schema["title"]
    assert schema["description"]


@pytest.mark.parametrize("name", NAMES)
def test_patterns_are_anchored(name):
    """A pattern speaks of the whole text: some validators search, others match."""
    for part in parts(load_schema(name)):
        if "pattern" in part:
            assert part["pattern"].startswith("^")
            assert part["pattern"].endswith("$")


@pytest.mark.parametrize("name", NAMES)
def test_examples_and_defaults_are_valid(name):
    """What a schema shows is what it takes."""
    schema = load_schema(name)
    for part in parts(schema):
        rule = {**resolve(part, schema), "$defs": schema.get("$defs", {})}
        rule.pop("$ref", None)
        for example in [*part.get("examples", []), *([part["default"]] if "default" in part else [])]:
            Draft202012Validator(rule).validate(example)


def test_every_value_of_a_training_job_is_explained():
    """Each key has a title and a description of its own or by reference."""
    for part in parts(TRAINING_JOB):
        for key in part.get("properties", {}):
            rule = child_rule(part, key, TRAINING_JOB)
            assert rule.get("title"), key
            assert rule.get("description"), key


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pod-template.v1"])
def test_every_property_is_described(name):
    """Whoever reads a document finds in its schema what each value means. (A pod template is Kubernetes' own.)"""
    schema = load_schema(name)
    undescribed = [
        key
        for part in parts(schema)
        for key in part.get("properties", {})
        if not child_rule(part, key, schema).get("description")
    ]
    assert undescribed == []


@pytest.mark.parametrize(
    "name",
    [
        "training-job.v1",
        "queue-tree.v1",
        "gpu-pools.v1",
        "policy.v1",
        "resource-profiles.v1",
        "scenario.v1",
        "horizontal-pod-autoscaler.v2",
    ],
)
def test_what_people_write_is_shown_by_example(name):
    """Each key has an example, a default, or few values; records, which programs write, are shown whole."""
    schema = load_schema(name)
    shown = ("examples", "default", "enum", "const")
    for part in parts(schema):
        for key in part.get("properties", {}):
            rule = child_rule(part, key, schema)
            assert rule.get("type") == "boolean" or any(word in rule for word in shown), key


def documented(root):
    """What the documentation and the examples show as YAML."""
    for path in sorted((root / "docs").rglob("*.md")):
        yield from re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    for folder in ("pipelines/examples", "tests/golden"):
        for path in sorted((root / folder).rglob("*.yaml")):
            yield path.read_text()


def changes(value, path=()):
    """The document with each of its mappings changed in ways that break its structure."""
    if not isinstance(value, dict):
        return
    yield path, {**value, "noSuchKey": 1}
    for key in value:
        for wrong in ([], {"a": {"b": 1}}, -1, 1.5, True, None, "", " x"):
            yield path, {**value, key: wrong}
        yield path, {other: part for other, part in value.items() if other != key}
        yield from changes(value[key], (*path, key))


def with_part(value, path, part):
    """The document with another part at a path."""
    return part if not path else {**value, path[0]: with_part(value[path[0]], path[1:], part)}


@pytest.fixture(name="specs", scope="session")
def _specs(root):
    """The documented TrainingJobs."""
    found = [yaml.safe_load(text) for text in documented(root) if "\nkind: TrainingJob" in text]
    assert len(found) > 20
    return found


def test_any_validator_takes_what_is_documented(specs):
    """By the published schema alone, with no registry to look anything up in."""
    for spec in specs:
        Draft202012Validator(TRAINING_JOB).validate(spec)


@given(data=st.data())
def test_any_validator_gives_the_same_verdict_on_structure(specs, data):
    """What the published schema alone refuses, this package refuses, and the other way round."""
    spec = data.draw(st.sampled_from(specs))
    path, part = data.draw(st.sampled_from(list(changes(spec))))
    other = with_part(spec, path, part)
    assert Draft202012Validator(TRAINING_JOB).is_valid(other) == (not list(deviations(other, TRAINING_JOB)))


def the_default(field, rule):
    """The default of a field as a spec writes it, in the schema's spelling."""
    value = field.default_factory() if field.default is dataclasses.MISSING else field.default
    if field.name.endswith("_s"):
        return rule["default"] if value == duration(rule["default"]) else value
    if value is None or dataclasses.is_dataclass(value):
        return {}
    _, write = field.metadata.get("codec", (None, lambda value: list(value) if isinstance(value, tuple) else value))
    return write(value)


def at(*path):
    """The part of the TrainingJob's schema at a path of keys."""
    rule = TRAINING_JOB
    for key in path:
        rule = child_rule(rule, key, TRAINING_JOB)
    return rule


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (training_job.TrainingJob, [at("metadata"), at("spec")]),
        (training_job.Replicas, [at("spec", "roles", "worker", "replicas")]),
        (training_job.Resources, [at("spec", "roles", "worker", "resources")]),
        (training_job.Role, [at("spec", "roles", "worker")]),
        (training_job.Batch, [at("spec", "elasticity", "batch")]),
        (training_job.Elasticity, [at("spec", "elasticity")]),
        (training_job.Data, [at("spec", "data")]),
        (training_job.Checkpoint, [at("spec", "checkpoint")]),
        (training_job.Faults, [at("spec", "faults")]),
        (monitor.Monitor, [at("spec", "monitor")]),
        (monitor.Spike, [at("spec", "monitor", "loss"), at("spec", "monitor", "gradient")]),
        (monitor.SlowDown, [at("spec", "monitor", "slowdown")]),
        (monitor.Rollback, [at("spec", "monitor", "rollback")]),
        (monitor.Evaluate, [at("spec", "monitor", "evaluate")]),
        (monitor.EarlyStop, [at("spec", "monitor", "evaluate", "earlyStop")]),
        (training_job.Straggler, [at("spec", "faults", "straggler")]),
        (training_job.Mpi, [at("spec", "mpi")]),
        (training_job.Agent, [at("spec", "elasticity", "agent")]),
        (training_job.Coordinator, [at("spec", "elasticity", "coordinator")]),
        (pods.Volume, [at("spec", "volumes", "data")]),
        (pods.Pod, [at("spec", "pod")]),
        (pods.Placement, [at("spec", "placement")]),
        (pods.Toleration, [resolve(at("spec", "placement", "tolerations")["items"], TRAINING_JOB)]),
        (pods.Topology, [at("spec", "placement", "topology")]),
        (pods.Devices, [at("spec", "placement", "devices")]),
        (pods.GpuShare, [at("spec", "roles", "worker", "resources", "gpuShare")]),
        (pods.Preflight, [at("spec", "faults", "preflight")]),
        (pods.Cleanup, [at("spec", "faults", "cleanup")]),
        (pods.Pending, [at("spec", "faults", "pending")]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_type_of_the_spec_has_the_keys_and_values_of_its_schema(kind, rules):
    """Each field is a key and each key a field; an enumeration has the same values in both."""
    properties = {key: resolve(rule, TRAINING_JOB) for part in rules for key, rule in part["properties"].items()}
    hints = typing.get_type_hints(kind)
    keys = {}
    for field in dataclasses.fields(kind):
        keys[wire_key(field.name, field.metadata)] = field
    if kind in (training_job.Role, pods.Volume):
        del keys["name"]  # the key under which it stands
    assert keys.keys() == properties.keys() - FILLED_IN
    for key, field in keys.items():
        _, values = json_types(hints[field.name])
        assert set(properties[key].get("enum", ())) == values, key
        if "default" in properties[key] and not required(field):
            assert the_default(field, properties[key]) == properties[key]["default"], key
        if required(field) and kind is not training_job.Replicas:
            defaulted = "default" in properties[key]
            assert defaulted or any(key in part.get("required", ()) for part in rules), key


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_the_fields_of_its_schema(name):
    """Names, types, values of enumerations, and what is required agree."""
    kind = RECORDS[name]
    rule = load_schema(f"record-{name}.v1")
    compare(kind, rule["items"] if rule["type"] == "array" else rule)


def compare(kind, rule):
    """A record's type against the schema of one such record."""
    hints, entries = typing.get_type_hints(kind), dataclasses.fields(kind)
    assert rule["title"] == kind.__name__
    assert rule["properties"].keys() == {field.name for field in entries}
    assert set(rule["required"]) == {field.name for field in entries if required(field)}
    for field in entries:
        own = rule["properties"][field.name]
        expected, values = json_types(hints[field.name])
        assert own.get("type", "string") in expected, field.name
        if values:
            assert set(own["enum"]) == values
        nested = next((part for part in typing.get_args(hints[field.name]) if dataclasses.is_dataclass(part)), None)
        if nested:
            compare(nested, own.get("items", own))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_survives_its_annotation(name):
    """A schema's example is a record; what is written of it fits the schema, and reads as the same record."""
    schema = load_schema(f"record-{name}.v1")
    read = functools.partial(records.parse_list if schema["type"] == "array" else records.parse, RECORDS[name])
    record = read(json.dumps(schema["examples"][0]))
    text = records.dump(record)
    Draft202012Validator(schema).validate(json.loads(text))
    assert read(text) == record


@pytest.mark.parametrize("name", RECORDS)
def test_a_reader_ignores_what_a_newer_writer_adds(name):
    """Unknown keys of a record are no error, neither for the schema nor for the type."""
    schema = load_schema(f"record-{name}.v1")
    example = schema["examples"][0]
    for entry in example if schema["type"] == "array" else [example]:
        newer = {**entry, "added_later": {"x": 1}}
        rule = schema["items"] if schema["type"] == "array" else schema
        Draft202012Validator(rule).validate(newer)
        assert records.parse(RECORDS[name], json.dumps(newer)) is not None
