# SPDX-License-Identifier: Apache-2.0
"""Trees of queues: every problem at once, each with its place; what Volcano would misread is refused."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.queue_tree import QueueNode, QueueTree, Quota
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.schemas.structure import load_schema, resolve

SCHEMA = load_schema("queue-tree.v1")

TREE = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "QueueTree",
    "metadata": {"name": "platform"},
    "spec": {
        "plugin": "capacity",
        "total": {"gpu": 16},
        "queues": [
            {
                "name": "research",
                "capability": {"gpu": 16, "cpu": 128, "memory": "1Ti"},
                "deserved": {"gpu": 12},
                "guarantee": {"gpu": 4},
                "queues": [
                    {
                        "name": "vision",
                        "capability": {"gpu": 12},
                        "deserved": {"gpu": 8},
                        "guarantee": {"gpu": 4},
                        "quotas": {"vision": {"requests": {"gpu": 12}, "jobs": 50}},
                    },
                    {"name": "speech", "deserved": {"gpu": 4}, "reclaimable": False},
                ],
            },
            {"name": "production", "deserved": {"gpu": 4}, "priority": 10},
            {"name": "default", "capability": {"gpu": 2}},
        ],
    },
}
RESEARCH, VISION, SPEECH = "spec.queues[0]", "spec.queues[0].queues[0]", "spec.queues[0].queues[1]"


def steps(path):
    """The keys of a path such as `spec.queues[0].name`."""
    for part in path.replace("[", ".[").split("."):
        yield int(part[1:-1]) if part.startswith("[") else part


def changed(**changes):
    """The tree with other values, by path with `__` for dots; `...` takes a value out."""
    tree = copy.deepcopy(TREE)
    for path, value in changes.items():
        *way, last = steps(path)
        place = tree
        for key in way:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return tree


def problems(tree):
    """What is wrong, by path."""
    with pytest.raises(SpecError) as caught:
        queue_tree(tree)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_a_sound_tree_becomes_values():
    """Amounts stand under the resources' own names, as text; what is not said has its default."""
    tree = queue_tree(TREE)
    assert isinstance(tree, QueueTree)
    research, production, default = tree.queues
    vision, speech = research.queues
    assert research.capability == {"cpu": "128", "memory": "1Ti", "nvidia.com/gpu": "16"}
    assert vision.quotas[0].requests == {"nvidia.com/gpu": "12"}
    assert (speech.reclaimable, vision.reclaimable) == (False, True)
    assert (production.priority, default.deserved) == (10, {})
    assert [node.name for node, _ in tree.walk()] == ["research", "production", "default", "vision", "speech"]


@pytest.mark.parametrize(
    ("kind", "rule", "elsewhere"),
    [
        (QueueTree, SCHEMA["properties"]["spec"], {"name"}),
        (QueueNode, SCHEMA["$defs"]["queue"], set()),
        (Quota, SCHEMA["$defs"]["quota"], {"namespace"}),
    ],
)
def test_types_and_schema_have_the_same_keys_and_defaults(kind, rule, elsewhere):
    """Each key has a description; `elsewhere` is what stands outside that part of the document."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    assert fields.keys() - elsewhere == rule["properties"].keys()
    for key, part in rule["properties"].items():
        explained = resolve(part, SCHEMA)
        assert explained["title"], key
        assert explained["description"], key
        if not isinstance(explained.get("default", {}), dict):
            assert fields[key].default == explained["default"], key


def test_a_quota_that_names_no_requests_has_the_capability_of_the_queue():
    """The limit of the team is then the same whatever schedules its pods."""
    tree = queue_tree(changed(**{f"{VISION}.quotas": {"vision": {}}}))
    assert tree.queues[0].queues[0].quotas[0].requests == {"nvidia.com/gpu": "12"}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        (
            {f"{RESEARCH}.guarantee": {"gpu": 9}, f"{VISION}.guarantee": {"gpu": 9}},
            f"{VISION}.guarantee.gpu",
            "more than it deserves",
        ),
        ({f"{VISION}.deserved": ...}, f"{VISION}.deserved.gpu", "what is guaranteed has to be deserved"),
        ({f"{VISION}.capability": {"gpu": 7}}, f"{VISION}.deserved.gpu", "more than its capability"),
        ({f"{SPEECH}.capability": {"gpu": 17}}, f"{SPEECH}.capability.gpu", "research, which is above it"),
        ({f"{SPEECH}.deserved": {"gpu": 5}}, f"{RESEARCH}.deserved.gpu", "vision 8 + speech 5"),
        ({f"{SPEECH}.guarantee": {"gpu": 1}}, f"{RESEARCH}.guarantee.gpu", "vision 4 + speech 1"),
        ({f"{RESEARCH}.guarantee": ...}, f"{RESEARCH}.guarantee.gpu", "counts as 0"),
        ({f"{SPEECH}.deserved": {"gpu": 4, "cpu": 0}}, f"{RESEARCH}.deserved.cpu", "counts as 0"),
        ({f"{SPEECH}.deserved": ...}, f"{SPEECH}.deserved.gpu", "perhaps 0"),
        ({"spec.total": {"gpu": 15}}, "spec.total.gpu", "less than the deserved research 12 + production 4"),
        ({f"{SPEECH}.name": "vision"}, f"{SPEECH}.name", "one in the cluster"),
        ({f"{SPEECH}.name": "root"}, f"{SPEECH}.name", "above all others"),
        ({f"{SPEECH}.name": "Speech"}, f"{SPEECH}.name", "not a valid name"),
        ({f"{SPEECH}.name": "a" * 254}, f"{SPEECH}.name", "at most 253"),
        ({f"{RESEARCH}.name": "default", "spec.queues[2]": {"name": "x"}}, f"{RESEARCH}.name", "keep it at the top"),
        ({f"{VISION}.weight": 2}, f"{VISION}.weight", "means nothing to plugin capacity"),
        ({f"{VISION}.capability": {"gpu": 12, "cpu": 0}}, f"{VISION}.capability.cpu", "0 means no limit"),
        ({f"{VISION}.capability": {"gpu": 12.5}}, f"{VISION}.capability.gpu", "a whole number"),
        ({f"{VISION}.capability": {"gpu": 12, "cpu": "1.0005"}}, f"{VISION}.capability.cpu", "no finer than 1m"),
        ({f"{VISION}.capability": {"gpu": "99E"}}, f"{VISION}.capability.gpu", "more than Volcano can count"),
        ({f"{VISION}.capability": {"gpus": 1}}, f"{VISION}.capability.gpus", "not a valid resource"),
        (
            {f"{VISION}.capability": {"gpu": 12, "nvidia.com/gpu": 12}},
            f'{VISION}.capability["nvidia.com/gpu"]',
            "name it once",
        ),
        ({f"{RESEARCH}.closed": True, f"{SPEECH}.closed": False}, f"{SPEECH}.closed", "closed with research"),
        ({f"{SPEECH}.quotas": {"vision": {"jobs": 1}}}, f"{SPEECH}.quotas.vision", "vision has a quota"),
        ({f"{SPEECH}.quotas": {"speech": {}}}, f"{SPEECH}.quotas.speech", "says nothing"),
        ({f"{SPEECH}.queues": []}, f"{SPEECH}.queues", "is empty"),
        ({"spec.plugin": "fair"}, "spec.plugin", "there is capacity, proportion"),
    ],
)
def test_what_volcano_would_refuse_or_misread_is_told(changes, path, words):
    """One mistake, one problem, where it is, with what would be right."""
    found = problems(changed(**changes))
    assert list(found) == [path]
    assert words in found[path]


def test_volcano_takes_five_levels():
    """Each queue at the sixth is told, once for what hangs on it."""
    tree = changed(**{"spec.total": ...})
    place = tree["spec"]["queues"][1]
    del place["deserved"]
    for level in range(2, 8):
        place["queues"] = [{"name": f"level-{level}"}]
        (place,) = place["queues"]
    assert list(problems(tree)) == ["spec.queues[1]" + ".queues[0]" * 5]


def test_proportion_shares_by_weight_and_knows_no_hierarchy():
    """Deserved and nesting are capacity's; a guarantee proportion keeps, too."""
    flat = [{"name": "a", "weight": 3, "guarantee": {"gpu": 2}, "capability": {"gpu": 8}}, {"name": "b"}]
    tree = queue_tree(changed(**{"spec.plugin": "proportion", "spec.queues": flat}))
    assert [node.weight for node in tree.queues] == [3, None]
    found = problems(changed(**{"spec.plugin": "proportion"}))
    assert set(found) == {
        f"{RESEARCH}.deserved", f"{RESEARCH}.queues", f"{VISION}.deserved", f"{SPEECH}.deserved",
        "spec.queues[1].deserved",
    }  # fmt: skip
    over = [{"name": "a", "guarantee": {"gpu": 9}, "capability": {"gpu": 8}}]
    assert list(problems(changed(**{"spec.plugin": "proportion", "spec.queues": over}))) == [
        "spec.queues[0].guarantee.gpu"
    ]


def test_all_problems_are_told_at_once():
    """At every level, whatever else is wrong."""
    found = problems(
        changed(
            **{
                "kind": "Queue",
                "spec.wieght": 1,
                f"{VISION}.weight": 1,
                f"{SPEECH}.reclaimable": "yes",
                f"{SPEECH}.deserved": {"gpu": 40},
                "spec.queues[1].priority": -1,
            }
        )
    )
    assert set(found) == {
        "kind", "spec.wieght", f"{VISION}.weight", f"{SPEECH}.reclaimable", f"{RESEARCH}.deserved.gpu",
        "spec.queues[1].priority",
    }  # fmt: skip


def test_a_sum_over_an_amount_that_cannot_be_read_is_not_guessed():
    """A broken amount is one problem, not three."""
    assert list(problems(changed(**{f"{SPEECH}.deserved": {"gpu": "many"}}))) == [f"{SPEECH}.deserved.gpu"]


def test_however_deep_it_is_an_answer_comes():
    """A tree that nests beyond all measure is refused in words."""
    tree = changed()
    place = tree["spec"]["queues"][1]
    for level in range(2000):
        place["queues"] = [{"name": f"level-{level}"}]
        (place,) = place["queues"]
    assert "nested too deeply" in str(problems(tree))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    "spec", "metadata", "spec.plugin", "spec.queues", "spec.total", RESEARCH, f"{RESEARCH}.queues", VISION,
    f"{VISION}.deserved", f"{VISION}.capability", f"{VISION}.quotas", f"{VISION}.closed", f"{VISION}.name",
    f"{VISION}.deserved.gpu", f"{VISION}.quotas.vision", f"{VISION}.quotas.vision.requests",
]  # fmt: skip


@given(st.sampled_from(PLACES), JSON)
def test_any_value_anywhere_is_taken_or_told(path, value):
    """Nothing but a tree or a SpecError comes out, whatever stands where."""
    try:
        found = queue_tree(changed(**{path: value}))
    except SpecError as error:
        found = error.problems
    assert found
