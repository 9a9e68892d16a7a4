# SPDX-License-Identifier: Apache-2.0
"""Agents and the coordinator's service, as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import psutil

from kfp_volcano.elastic.agent.environment import environment
from kfp_volcano.elastic.generations import Generation, Member

TELL = "echo $KFP_VOLCANO_GENERATION $KFP_VOLCANO_WORKERS $KFP_VOLCANO_RANK"
FOREVER = ["sh", "-c", f"trap 'echo checkpoint; exit 0' TERM; {TELL}; sleep 600 & wait"]


def test_an_image_needs_no_framework_for_it() -> None:
    """Importing the agent and the coordinator's services imports neither PyTorch nor Ray nor kfp."""
    program = (
        "import sys, kfp_volcano.elastic.agent.__main__, kfp_volcano.elastic.coordination.generations;"
        "sys.exit(str({'torch', 'torchft', 'ray', 'kfp', 'numpy', 'yaml'} & {*sys.modules}) if"
        " {'torch', 'torchft', 'ray', 'kfp', 'numpy', 'yaml'} & {*sys.modules} else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_change_of_size_starts_the_command_anew(serve: Any, pod: Any) -> None:
    """On a new generation the command is asked to end, may write its checkpoint, and starts with the new numbers."""
    serve()
    pods = [pod(index, FOREVER) for index in range(2)]
    assert [each.line() for each in pods] == ["1 2 0", "1 2 1"]
    third = pod(2, FOREVER)
    assert third.line() == "2 3 2"
    for index, each in enumerate(pods):
        assert [each.line(), each.line()] == ["checkpoint", f"2 3 {index}"]
    third.process.terminate()
    assert third.line() == "checkpoint"
    assert third.end() == 143
    for index, each in enumerate(pods):
        assert [each.line(), each.line()] == ["checkpoint", f"3 2 {index}"]


def test_a_killed_agent_that_comes_back_makes_a_new_generation(serve: Any, pod: Any) -> None:
    """Its command goes with the container; the others begin anew with its successor."""
    serve()
    first, second = (pod(index, FOREVER) for index in range(2))
    assert (first.line(), second.line()) == ("1 2 0", "1 2 1")
    below = psutil.Process(second.process.pid).children(recursive=True)
    second.process.kill()
    for each in below:
        each.kill()
    assert pod(1, FOREVER).line().endswith("2 1")
    assert first.line() == "checkpoint"
    assert first.line().endswith("2 0")


def test_the_exit_code_is_the_commands(serve: Any, pod: Any) -> None:
    """0 where it ended well, though the others go on; its own where it failed and no change explains it."""
    serve()
    good, other = pod(0, ["sh", "-c", f"{TELL}; exit 0"]), pod(1, ["sh", "-c", f"{TELL}; exit 7"])
    assert (good.line(), other.line()) == ("1 2 0", "1 2 1")
    assert good.end() == 0
    assert other.end() == 7


def test_a_failure_that_a_change_explains_is_none(serve: Any, pod: Any) -> None:
    """A command that fails because a peer went is started again with those who are there."""
    serve()
    once = ["sh", "-c", f"{TELL}; [ $KFP_VOLCANO_WORKERS = 3 ] && exit 9; sleep 600 & wait"]
    pods = [pod(0, FOREVER), pod(1, once), pod(2, FOREVER)]
    assert [each.line() for each in pods] == ["1 3 0", "1 3 1", "1 3 2"]
    pods[2].process.send_signal(signal.SIGTERM)
    assert pods[1].line() == "2 2 1"


def test_a_coordinator_that_comes_back_disturbs_nobody(serve: Any, pod: Any) -> None:
    """The generation goes on; the next change is numbered after it."""
    service = serve()
    pods = [pod(index, FOREVER) for index in range(2)]
    assert [each.line() for each in pods] == ["1 2 0", "1 2 1"]
    service.stop()
    serve()
    third = pod(2, FOREVER)
    assert third.line() == "2 3 2"
    assert [pods[0].line(), pods[0].line()] == ["checkpoint", "2 3 0"]


def test_what_a_command_started_ends_with_it(serve: Any, pod: Any) -> None:
    """Daemons in sessions of their own do not live into the next generation."""
    serve()
    daemon = ["sh", "-c", "setsid sleep 600 & echo $!; trap 'exit 0' TERM; sleep 600 & wait"]
    first, second = pod(0, daemon), pod(1, FOREVER)
    pid = int(first.line())
    second.process.terminate()
    pod(2, FOREVER).line()
    assert int(first.line()) != pid
    assert not psutil.pid_exists(pid)


def members(*roles: tuple[str, int]) -> tuple[Member, ...]:
    return tuple(
        Member(
            pod=f"{role}-{index}", incarnation="x", host=f"10.0.0.{index}", role=role, task=role, index=index, port=2222
        )
        for role, number in roles
        for index in range(number)
    )


def test_tensorflow_is_told_the_present_cluster() -> None:
    """Chief, workers and parameter servers with their places; evaluators stand outside; one alone has no cluster."""
    generation = Generation(number=3, members=members(("chief", 1), ("evaluator", 1), ("ps", 1), ("worker", 2)))
    told = json.loads(environment(generation, generation.of("worker")[1], "tensorflow")["TF_CONFIG"])
    assert told == {
        "cluster": {
            "chief": ["10.0.0.0:2222"],
            "ps": ["10.0.0.0:2222"],
            "worker": ["10.0.0.0:2222", "10.0.0.1:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }
    evaluator = json.loads(environment(generation, generation.of("evaluator")[0], "tensorflow")["TF_CONFIG"])
    assert evaluator["task"] == {"type": "evaluator", "index": 0}
    alone = Generation(number=1, members=members(("worker", 1)))
    assert environment(alone, alone.members[0], "tensorflow")["TF_CONFIG"] == "{}"


def test_torchrun_meets_exactly_its_generation() -> None:
    """The first worker hosts a rendezvous on its own port, with an id that no other generation or Job has."""
    generation = Generation(number=3, members=members(("worker", 2)))
    first, second = (environment(generation, each, "pytorch") for each in generation.members)
    assert first["PET_NNODES"] == second["PET_NNODES"] == "2"
    assert first["PET_RDZV_ENDPOINT"] == second["PET_RDZV_ENDPOINT"] == "10.0.0.0:2222"
    assert (first["PET_RDZV_CONF"], second["PET_RDZV_CONF"]) == ("is_host=1", "is_host=0")
    assert first["PET_RDZV_ID"] == second["PET_RDZV_ID"] == "worker-0-x-3"
    again = tuple(replace(each, incarnation="y") for each in generation.members)
    other = Generation(number=3, members=again)
    assert environment(other, again[0], "pytorch")["PET_RDZV_ID"] != first["PET_RDZV_ID"]
