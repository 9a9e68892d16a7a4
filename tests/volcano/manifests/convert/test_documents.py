# SPDX-License-Identifier: Apache-2.0
"""Files: several documents, lists, JSON, and what is wrong in one of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.manifests.convert.conversion import Converted, convert_files
from kfp_volcano.volcano.manifests.convert.documents import documents


def test_documents_and_lists_are_taken_apart() -> None:
    """An item of a typed list takes its kind from the list."""
    text = """# a comment
---
kind: PyTorchJob
--- # the second
apiVersion: v1
kind: List
items: [{kind: TFJob}, {kind: MPIJob}]
---
apiVersion: kubeflow.org/v1
kind: JAXJobList
items: [{metadata: {name: a}}]
...
"""
    found = list(documents(text, "f.yaml"))
    assert [document.kind for document in found] == ["PyTorchJob", "TFJob", "MPIJob", "JAXJob"]
    assert found[2].source == "f.yaml, document 2, items[1]"
    assert found[3].api == "kubeflow.org/v1"


@pytest.mark.parametrize("broken", ["a: [", "kind: A\nkind: B", "- 1", "a: {1: 2}", "{{ template }}"])
def test_a_broken_document_leaves_the_others(broken: str) -> None:
    """It is named with its place."""
    before, wrong, after = documents(f"kind: A\n---\n{broken}\n---\nkind: B\n", "f.yaml")
    assert (before.kind, after.kind) == ("A", "B")
    assert isinstance(wrong.value, SpecError)
    assert wrong.source == "f.yaml, document 2"


def test_a_message_has_the_line_in_the_file() -> None:
    """Not that in the document."""
    _, wrong = documents("kind: A\n---\na: 1\nb: ]\n", "f.yaml")
    assert "line 4" in str(wrong.value)


def test_json_and_nothing() -> None:
    """A file of JSON has one document, an empty one none."""
    assert [document.kind for document in documents('{"kind": "A"}', "f.json")] == ["A"]
    assert list(documents("\n# nothing\n---\n", "f.yaml")) == []


def test_placeholders_and_templates_are_called_so(make: Any, refusal: Any) -> None:
    """What is wrong is not the YAML: somebody has to fill it in first."""
    job = make.pytorch()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "$NUM_NODES"
    assert "fill in the placeholder first" in refusal(job)
    (refused,) = convert_files({"t.yaml": "kind: {{ .Values.kind }}\n{{- if x }}\na: 1\n"})
    assert "render it first (helm template …)" in str(refused)


def test_a_byte_order_mark_before_a_separator_is_no_document(make: Any) -> None:
    """As editors of Windows write it."""
    text = "\ufeff---\n" + json.dumps(make.pytorch()) + "\n---\n"
    assert [type(result) for result in convert_files({"j.yaml": text})] == [Converted]
