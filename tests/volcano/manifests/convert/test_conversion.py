# SPDX-License-Identifier: Apache-2.0
"""The laws of every conversion: nothing is forgotten, nothing invalid is written, nothing breaks."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests.convert.conversion import Converted, Refused, convert_files
from kfp_volcano.volcano.manifests.convert.documents import documents
from kfp_volcano.volcano.manifests.job import job_manifest

Place = tuple[Any, ...]


def leaves(value: Any, path: Place = ()) -> Iterator[Place]:
    """The places of the values of a document that hold no others; null and what is empty say nothing."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from leaves(child, (*path, key))
    if not isinstance(value, dict | list) and value is not None:
        yield path


def unaccounted(value: Any, result: Converted) -> list[str]:
    """The leaves of a document that its account does not name, nor anything around them."""
    told = {entry.path for entry in result.entries}
    return [
        dotted(leaf)
        for leaf in leaves(value)
        if not any(dotted(leaf[:depth]) in told for depth in range(1, len(leaf) + 1))
    ]


def check(value: Any, result: Converted) -> None:
    """The laws of one conversion."""
    assert unaccounted(value, result) == []
    spec = training_job(result.spec)
    least = spec.workers.replicas.min
    assert job_manifest(spec, name=job_name(spec.name, "r"), run_id="r", step="s", workers=least)["kind"] == "Job"


def test_every_kind_is_converted_whole(make: Any) -> None:
    """Each field of a job of each kind is accounted for, and the spec is valid and can be rendered."""
    for name, value in make.every_kind().items():
        (result,) = make.convert(value)
        assert isinstance(result, Converted), f"{name}: {result}"
        check(value, result)


def another(value: Any) -> Any:
    """A value of the same type that says something else; of known words another known one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    words = {"OnFailure": "Never", "Never": "OnFailure", "ExitCode": "Never", "All": "None", "Running": "All"}
    return words.get(value, f"3{value}" if re.fullmatch(r"[0-9]+[A-Za-z]*", value) else f"{value}x")


def changed(value: Any, place: Place) -> Any:
    """The document with something else at a place."""
    other = copy.deepcopy(value)
    parent = other
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = another(parent[place[-1]])
    return other


CHOICES = re.compile(r"containers\[\d+\]\.name|targetJobs\[\d+\]\.name|spec\.tasks\[\d+\]\.name|spec\.plugins\..*")
"""Names that only choose: which container trains, which job an override is for, which task a plugin means."""


@given(data=st.data())
def test_no_value_is_read_in_vain(make: Any, data: st.DataObject) -> None:
    """Say something else anywhere: the spec or the account differs, or the account calls just that field lost.

    So nothing is dropped behind an entry for something around it, and nothing counts as kept that is not.
    """
    value = data.draw(st.sampled_from(list(make.every_kind().values())))
    place = data.draw(st.sampled_from([place for place in leaves(value) if not CHOICES.search(dotted(place))]))
    (result,) = make.convert(value)
    (other,) = make.convert(changed(value, place))
    if not isinstance(other, Converted) or (other.spec, other.entries) != (result.spec, result.entries):
        return
    told = {entry.path for entry in result.entries if entry.outcome != "kept"}
    lost = {entry.path for entry in result.entries if entry.outcome == "lost"}
    whole = place[:-1] if isinstance(place[-1], int) else place
    assert {dotted(place), dotted(whole)} & told or {dotted(place[:depth]) for depth in range(1, len(place))} & lost


def test_the_operators_own_examples_are_converted(shared: Path) -> None:
    """All of them: each field accounted for, each spec valid."""
    files = {path.name: path.read_text() for path in sorted((shared / "jobs").glob("*.yaml"))}
    results = list(convert_files(files))
    assert [str(result) for result in results if isinstance(result, Refused)] == []
    values = {document.source: document.value for name, text in files.items() for document in documents(text, name)}
    for result in results:
        assert isinstance(result, Converted)
        check(values[result.source], result)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=8)
    | st.sampled_from(["0", "1Gi", "auto", "Never"]),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=6), children, max_size=2),
    max_leaves=4,
)


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """All mappings in a document."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(child)


@given(data=st.data())
def test_no_field_is_forgotten_wherever_it_stands(make: Any, data: st.DataObject) -> None:
    """A field that nobody foresaw, in any mapping of a job: it is accounted for, or the job is refused."""
    value = data.draw(st.sampled_from(list(make.every_kind().values())))
    places = list(mappings(value))
    place = places[data.draw(st.integers(0, len(places) - 1))]
    key = data.draw(st.text(min_size=1, max_size=8).filter(lambda key: key not in place) | st.just("zebra"))
    place[key] = data.draw(json_values)
    (result,) = make.convert(value)
    if isinstance(result, Converted):
        check(value, result)


@given(data=st.data())
def test_no_job_breaks_the_converter(make: Any, data: st.DataObject) -> None:
    """A job with a part missing, or something else in its place, is converted by the laws, or refused."""
    value = data.draw(st.sampled_from(list(make.every_kind().values())))
    places = [place for place in mappings(value) if place]
    place = places[data.draw(st.integers(0, len(places) - 1))]
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(json_values)
    (result,) = make.convert(value)
    if isinstance(result, Converted):
        check(value, result)


def test_equal_files_give_equal_specs(make: Any) -> None:
    """The conversion depends on nothing but the files."""
    for value in make.every_kind().values():
        assert make.convert(value) == make.convert(value)


def test_one_refusal_leaves_the_others(make: Any) -> None:
    """Each document stands for itself, and a refusal names the file, the document and the reason."""
    broken = make.pytorch()
    del broken["spec"]["pytorchReplicaSpecs"]
    first, second, third = make.convert(make.pytorch(), broken, make.volcano_job())
    assert isinstance(first, Converted)
    assert isinstance(third, Converted)
    assert str(second).startswith("jobs.yaml, document 2: spec.pytorchReplicaSpecs: there are no replicas in it")


def test_what_is_no_job_is_passed_over_beside_one(make: Any) -> None:
    """A ConfigMap in a job's file is no reason to refuse it, but is told; a file of such things alone is refused."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}}
    passed, converted = make.convert(other, make.pytorch())
    assert isinstance(converted, Converted)
    assert str(passed) == "jobs.yaml, document 1: ConfigMap conf is no training job"
    (refused,) = make.convert(other)
    assert "holds no training job, but ConfigMap" in str(refused)


@pytest.mark.parametrize("api", ["kubeflow.org/v1alpha1", "batch/v1", ""])
def test_other_versions_are_refused_by_name(make: Any, api: str) -> None:
    """What a version means that the converter does not know, it does not guess."""
    (refused,) = make.convert({**make.every_kind()["mpi"], "apiVersion": api})
    assert "kubeflow.org/v1 or kubeflow.org/v2beta1" in str(refused)


def test_a_job_that_names_no_queue_has_the_default_one(make: Any) -> None:
    """And the account says so."""
    (result,) = make.convert(make.pytorch(policy={}), queue="research")
    assert result.spec["spec"]["queue"] == "research"
    assert any(entry.target == "spec.queue" and entry.outcome == "changed" for entry in result.entries)
