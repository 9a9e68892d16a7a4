# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano queues …`: what goes where, and what is asked before."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.volcano.cluster import connect
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

TREE = """
apiVersion: kfp-volcano/v1
kind: QueueTree
metadata: {name: platform}
spec:
  plugin: capacity
  queues:
  - name: dept
    deserved: {gpu: 8}
    queues:
    - {name: a, deserved: {gpu: 4}, quotas: {vision: {jobs: 3}}}
    - {name: b, deserved: {gpu: 4}}
"""
SMALLER = TREE.replace("    - {name: b, deserved: {gpu: 4}}\n", "")


def run(*arguments, answer=None):
    """Run a command in this process."""
    return CliRunner().invoke(main, ["queues", *map(str, arguments)], input=answer)


@pytest.fixture(name="tree")
def _tree(tmp_path):
    path = tmp_path / "tree.yaml"
    path.write_text(TREE)
    return path


@pytest.fixture(name="cluster")
def _cluster(tmp_path, monkeypatch):
    """The cluster that the commands reach."""
    cluster = EmbeddedCluster(tmp_path / "cluster", workdir=tmp_path)
    monkeypatch.setattr(connect, "connect", lambda **_: cluster)  # what `reach` takes without options
    yield cluster
    cluster.shutdown(grace_s=0)


def names(cluster):
    """The queues of a cluster."""
    return {queue["metadata"]["name"] for queue in cluster.list("Queue")[0]} - {"root", "default", "research"}


@pytest.mark.parametrize("command", ["plan", "apply", "diff", "render", "scheduler-config"])
def test_every_command_teaches(command):
    """Each begins with what it does, and shows an example."""
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"kfp-volcano queues {command} tree.yaml" in result.stdout


@pytest.mark.parametrize("command", ["plan", "apply", "diff", "render", "scheduler-config"])
def test_every_problem_of_a_tree_is_told_before_anything_else(command, tree):
    """Exit code 2, and standard output stays empty; no cluster is needed to hear it."""
    tree.write_text(TREE.replace("name: b, deserved: {gpu: 4}", "name: a, deserved: {gpu: 9}"))
    result = run(command, tree)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "spec.queues[0].queues[1].name" in result.stderr
    assert "spec.queues[0].deserved.gpu" in result.stderr


@pytest.mark.parametrize("command", ["plan", "apply", "diff"])
def test_without_a_cluster_the_way_to_name_one_is_told(command, tree):
    """Exit code 3."""
    result = run(command, tree)
    assert result.exit_code == 3
    assert "KFP_VOLCANO_CLUSTER" in result.stderr


def test_a_file_that_is_no_tree_is_named(tmp_path):
    """The message has the path."""
    result = run("render", tmp_path / "absent.yaml")
    assert result.exit_code == 2
    assert "absent.yaml" in result.stderr


def test_render_prints_the_objects_and_scheduler_config_the_configuration(tree):
    """Both are YAML and need no cluster."""
    kinds = [each["kind"] for each in yaml.safe_load_all(run("render", tree).stdout)]
    assert kinds == ["Queue", "Queue", "Queue", "ResourceQuota"]
    assert "reclaim" in yaml.safe_load(run("scheduler-config", tree).stdout)["actions"]


def test_plan_and_dry_run_print_the_steps_and_take_none(tree, cluster):
    """The same ones."""
    planned = run("plan", tree)
    assert planned.exit_code == 0
    assert planned.stdout.splitlines()[0] == "  1. create Queue dept: is new, below root"
    assert run("apply", tree, "--dry-run").stdout == planned.stdout
    assert names(cluster) == set()


def test_apply_takes_the_steps_and_a_second_time_none(tree, cluster):
    """And says so."""
    result = run("apply", tree)
    assert result.exit_code == 0, result.stderr
    assert "4 steps done" in result.stderr
    assert names(cluster) == {"dept", "a", "b"}
    assert "nothing to do" in run("apply", tree).stdout


def test_a_deletion_wants_a_yes(tree, cluster):
    """Where nobody can be asked, in so many words; then it is done."""
    run("apply", tree)
    tree.write_text(SMALLER)
    refused = run("apply", tree)
    assert refused.exit_code == 2
    assert "Queue b" in refused.stderr
    assert "--yes" in refused.stderr
    assert names(cluster) == {"dept", "a", "b"}
    assert run("apply", tree, "--yes").exit_code == 0
    assert names(cluster) == {"dept", "a"}


@pytest.mark.parametrize(("answer", "left"), [("y\n", {"dept", "a"}), ("n\n", {"dept", "a", "b"})])
def test_at_a_terminal_it_is_asked(tree, cluster, monkeypatch, answer, left):
    """And no is no."""
    run("apply", tree)
    tree.write_text(SMALLER)
    monkeypatch.setattr("kfp_volcano.cli.options._terminal", lambda: True)
    result = run("apply", tree, answer=answer)
    assert "This is going to delete Queue b" in result.output
    assert names(cluster) == left


def test_diff_shows_fields_and_may_fail(tree, cluster):
    """For a person, and for a job that watches over drift."""
    run("apply", tree)
    assert run("diff", tree, "--exit-code").exit_code == 0
    tree.write_text(TREE.replace("{gpu: 8}", "{gpu: 9}"))
    result = run("diff", tree)
    assert (result.exit_code, result.stdout) == (0, "Queue dept\n  deserved.gpu: 8 -> 9\n")
    assert run("diff", tree, "--exit-code").exit_code == 1


def test_a_refused_step_is_named_with_what_is_done(tree, cluster, monkeypatch):
    """Exit code 3; the steps before it stay."""
    create = cluster.create

    def refusing(manifest):
        if manifest["metadata"]["name"] == "a":
            manifest = {**manifest, "spec": {**manifest["spec"], "deserved": {"cpu": "x"}}}
        return create(manifest)

    monkeypatch.setattr(cluster, "create", refusing)
    result = run("apply", tree)
    assert result.exit_code == 3
    assert "create Queue a was refused" in result.stderr
    assert "1 steps are done, 3 are not" in result.stderr
    assert names(cluster) == {"dept"}
