# SPDX-License-Identifier: Apache-2.0
"""The scheduler configuration of a tree."""

from __future__ import annotations

import itertools

import pytest
import yaml

from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.volcano.manifests.scheduler_config import scheduler_config


def config(plugin, *queues):
    """The configuration of a tree, parsed, and its plugins by name."""
    spec = {"plugin": plugin, "queues": list(queues)}
    document = {"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", "metadata": {"name": "t"}, "spec": spec}
    value = yaml.safe_load(scheduler_config(queue_tree(document)))
    plugins = {entry["name"]: entry for tier in value["tiers"] for entry in tier["plugins"]}
    return value["actions"].split(", "), plugins, value


DEPARTMENT = {
    "name": "dept",
    "deserved": {"gpu": 8},
    "queues": [{"name": "a", "deserved": {"gpu": 4}}, {"name": "b", "deserved": {"gpu": 4}}],
}


def test_it_is_the_configuration_that_was_recorded(shared):
    """For a tree of departments: what the recorded scenarios, which the model follows, were played with."""
    _, _, value = config("capacity", DEPARTMENT)
    assert value == yaml.safe_load((shared / "lab" / "scheduler-classic.yaml").read_text())


def test_hierarchy_is_for_trees_that_have_one():
    """Queues side by side need none."""
    assert config("capacity", DEPARTMENT)[1]["capacity"]["enableHierarchy"] is True
    assert "enableHierarchy" not in config("capacity", {"name": "a"})[1]["capacity"]


@pytest.mark.parametrize(
    ("plugin", "queues", "reclaims"),
    [
        ("capacity", [{"name": "a", "deserved": {"gpu": 1}}, {"name": "b"}], True),
        ("capacity", [{"name": "a", "deserved": {"gpu": 1}}], False),
        ("capacity", [{"name": "a"}, {"name": "b"}], False),
        ("capacity", [{"name": name, "deserved": {"gpu": 1}, "reclaimable": False} for name in "ab"], False),
        ("proportion", [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}], True),
    ],
)
def test_reclaim_is_on_where_one_may_take_from_another(plugin, queues, reclaims):
    """Somebody has to be entitled, and somebody to have to give."""
    assert ("reclaim" in config(plugin, *queues)[0]) is reclaims


def test_capacity_and_proportion_exclude_each_other():
    """The tree's plugin and no other."""
    assert {"capacity", "proportion"} & config("proportion", {"name": "a"})[1].keys() == {"proportion"}
    assert {"capacity", "proportion"} & config("capacity", {"name": "a"})[1].keys() == {"capacity"}


def test_quotas_bring_the_plugin_that_looks_at_them():
    """And it stands where it is asked."""
    _, plugins, value = config("capacity", {"name": "a", "quotas": {"n": {"jobs": 3}}})
    assert "resourcequota" in plugins
    tier = next(tier["plugins"] for tier in value["tiers"] if {"name": "capacity"} in tier["plugins"])
    assert {"name": "resourcequota"} in tier


def test_every_line_has_its_reason():
    """A comment stands right above each action list, plugin and switch."""
    tree = {"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", "metadata": {"name": "t"}}
    lines = scheduler_config(queue_tree({**tree, "spec": {"plugin": "capacity", "queues": [DEPARTMENT]}})).splitlines()
    for above, line in itertools.pairwise(lines):
        if not line.lstrip().startswith(("#", "- plugins", "tiers")):
            assert above.lstrip().startswith("#"), line
