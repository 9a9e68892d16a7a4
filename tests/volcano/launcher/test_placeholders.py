# SPDX-License-Identifier: Apache-2.0
"""Placeholders in a component's command are filled in as KFP fills them in."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp import dsl
from kfp.local import placeholder_utils

from kfp_volcano.volcano.launcher.placeholders import filled_in, unknown_placeholders

# Beyond ASCII KFP's local runner escapes what is within JSON, and its backend does not.
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="{"), max_size=12)
values = st.one_of(
    texts, st.integers(-99, 99), st.booleans(), st.dictionaries(texts, texts, max_size=2), st.lists(texts)
)
INPUT = {
    "inputs": {
        "artifacts": {
            "data": {"artifacts": [{"name": "data", "uri": "/in/data", "metadata": {"rows": 3, "tag": "it's"}}]}
        },
    },
    "outputs": {
        "parameters": {"score": {"outputFile": "/out/score"}},
        "artifacts": {"model": {"artifacts": [{"name": "model", "uri": "/out/model", "metadata": {}}]}},
        "outputFile": "/out/executor_output.json",
    },
}
WORDS = [
    "plain",
    "{{$.inputs.parameters['x']}}",
    "--x={{$.inputs.parameters['x']}},{{$.inputs.parameters['y']}}",
    "{{$.inputs.artifacts['data'].path}}",
    "{{$.inputs.artifacts['data'].uri}}",
    "{{$.inputs.artifacts['data'].metadata['tag']}}",
    "{{$.outputs.artifacts['model'].path}}",
    "{{$.outputs.parameters['score'].output_file}}",
    json.dumps({"Concat": ["a-", "{{$.inputs.parameters['x']}}", "-b"]}),
    json.dumps({"IfPresent": {"InputName": "x", "Then": ["--x", "{{$.inputs.parameters['x']}}"], "Else": ["--no-x"]}}),
    json.dumps({"IfPresent": {"InputName": "z", "Then": ["--z", "1"], "Else": ["--no-z"]}}),
    json.dumps({"IfPresent": {"InputName": "z", "Then": "--z"}}),
    json.dumps({"Concat": ["a", {"IfPresent": {"InputName": "data", "Then": "b", "Else": "c"}}]}),
]


@given(x=values, y=values, words=st.lists(st.sampled_from(WORDS), max_size=5))
def test_a_command_is_what_kfp_makes_of_it(x: Any, y: Any, words: list[str]) -> None:
    """The same words as KFP's own runner gives, whatever the values hold."""
    message: Any = copy.deepcopy(INPUT)
    message["inputs"]["parameterValues"] = {"x": x, "y": y}
    theirs = placeholder_utils.replace_placeholders(
        full_command=list(words),
        executor_input_dict=copy.deepcopy(message),
        pipeline_resource_name="p",
        task_resource_name="t",
        pipeline_root="/root",
        unique_pipeline_id="1",
    )
    ours = filled_in(words, message)
    assert ours == theirs


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.25, "0.25"), (1e-7, "0.0000001"), (True, "true"), (7, "7")])
def test_numbers_are_written_as_the_backend_writes_them(value: Any, text: str) -> None:
    """Go's shortest decimal, without an exponent."""
    assert filled_in(["{{$.inputs.parameters['x']}}"], {"inputs": {"parameterValues": {"x": value}}}) == [text]


def test_the_whole_message_is_json_that_reads_back() -> None:
    """What a Python component is given; text of any language stays as it is."""
    message = {**INPUT, "inputs": {"parameterValues": {"x": "größer 東京"}}}
    (text,) = filled_in(["{{$}}"], message)
    assert json.loads(text) == message
    assert "größer 東京" in text


def test_a_value_that_looks_like_a_placeholder_stays_as_it_is() -> None:
    """Values are put in once."""
    value = "{{$.inputs.parameters['y']}} {{$}}"
    message = {"inputs": {"parameterValues": {"x": value, "y": "secret"}}}
    assert filled_in(["{{$.inputs.parameters['x']}}"], message) == [value]


def test_what_nobody_fills_in_within_a_command_is_found() -> None:
    """The run's id, the workspace: KFP knows them as whole arguments of tasks alone."""
    words = [dsl.PIPELINE_JOB_ID_PLACEHOLDER, f"a{dsl.WORKSPACE_PATH_PLACEHOLDER}/b", "{{$}}", *WORDS]
    assert unknown_placeholders(words) == [dsl.PIPELINE_JOB_ID_PLACEHOLDER, dsl.WORKSPACE_PATH_PLACEHOLDER]
