# SPDX-License-Identifier: Apache-2.0
"""The scripts in a manifest do what they say, run by a real shell."""

from __future__ import annotations

import signal
import subprocess

import pytest

from kfp_volcano.schemas.pods import Cleanup, Preflight
from kfp_volcano.volcano.manifests import scripts

ENV = {"PATH": "/usr/bin:/bin", "KFP_VOLCANO_NODE": "node-7"}


def run(argv):
    """A script run to its end."""
    return subprocess.run(list(argv), env=ENV, capture_output=True, text=True, timeout=60, check=False)


def test_a_preflight_that_passes_says_nothing():
    """Its exit code is zero, whatever its arguments hold."""
    done = run(scripts.examined(Preflight(command=("test", "a 'b\" $(c)", "=", "a 'b\" $(c)"))))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "timeout", "code", "words"),
    [
        (("sh", "-c", "exit 3"), 60, 3, "preflight failed on node node-7, exit code 3"),
        (("sleep", "60"), 1, 124, "preflight failed on node node-7, exit code 124"),
        (("no-such-program",), 60, 127, "preflight could not be run, exit code 127"),
    ],
)
def test_a_preflight_that_fails_names_the_node(command, timeout, code, words):
    """Its last words become the container's message; a program that is not there is no fault of the node."""
    done = run(scripts.examined(Preflight(command=command, timeout_s=timeout)))
    assert done.returncode == code
    assert done.stderr.strip().splitlines()[-1] == words


@pytest.mark.parametrize("code", [0, 7])
def test_clean_up_follows_training_however_it_ended(code, tmp_path):
    """The exit code is training's; both programs get their arguments to the letter."""
    mark = tmp_path / "it's clean"
    done = run(
        scripts.tidied(("sh", "-c", f"echo $1; exit {code}", "x", 'a "b'), Cleanup(command=("touch", str(mark))), 60)
    )
    assert (done.returncode, done.stdout) == (code, 'a "b\n')
    assert mark.exists()


def test_a_clean_up_that_fails_changes_nothing():
    """It is told, and training's exit code stands."""
    done = run(scripts.tidied(("true",), Cleanup(command=("sleep", "60"), timeout_s=1), 60))
    assert done.returncode == 0
    assert "clean-up ended with exit code 124" in done.stderr


def test_a_stopped_program_ends_by_itself_and_is_cleaned_up_after(tmp_path):
    """SIGTERM reaches the program, which ends in its own time; then comes the clean-up."""
    mark = tmp_path / "clean"
    # A shell that starts a program just then can lose the signal (dash, while vfork returns): this one only waits.
    training = "trap 'kill $!; echo saved; exit 5' TERM; sleep 60 >/dev/null & echo ready; wait"
    argv = scripts.tidied(("sh", "-c", training), Cleanup(command=("touch", str(mark))), 60)
    with subprocess.Popen(list(argv), env=ENV, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (5, "saved\n")
    assert mark.exists()


def test_a_stopped_program_that_does_not_end_is_killed_in_time_for_the_clean_up(tmp_path):
    """After its grace; and a second SIGTERM gives it no more."""
    mark = tmp_path / "clean"
    training = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    argv = scripts.tidied(("sh", "-c", training), Cleanup(command=("touch", str(mark))), 1)
    with subprocess.Popen(list(argv), env=ENV, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 137
    assert mark.exists()


@pytest.mark.parametrize(
    ("index", "own", "told"),
    [("0", "", "is_host=1"), ("1", "", "is_host=0"), ("2", "timeout=900", "is_host=0,timeout=900")],
)
def test_the_first_worker_hosts_the_rendezvous(index, own, told):
    """Each torchrun knows without looking at addresses; what the user says of the rendezvous stays."""
    argv = scripts.torchrun(("sh", "-c", 'echo "$1 $PET_RDZV_CONF"', "x", 'a "b'))
    env = {**ENV, "KFP_VOLCANO_TASK_INDEX": index, "PET_RDZV_CONF": own}
    done = subprocess.run(list(argv), env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f'a "b {told}\n'


RAY = """#!/bin/sh
case "$1" in
health-check) exit 0 ;;
esac
echo "$*" >> "$CALLS"
if [ "$(wc -l < "$CALLS")" -lt 3 ]; then exit 1; fi
trap 'exit 7' TERM
echo joined
while :; do sleep 0.05; done
"""


def test_a_node_that_does_not_join_at_once_tries_again(tmp_path):
    """Within its time, in its pod; a node that is told to go is told to go, and its exit code is the container's."""
    calls, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()
    for name, text in {"ray": RAY, "python": "#!/bin/sh\nexit 0\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    env = {**ENV, "PATH": f"{programs}:{ENV['PATH']}", "CALLS": str(calls), "KFP_VOLCANO_HEAD": "head:6379"}
    argv = list(scripts.ray_worker(cpus=2, gpus=1))
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "joined\n"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 7
    assert told.count("it joins again") == 2
    assert all("--address=head:6379" in call and "--num-gpus=1" in call for call in calls.read_text().splitlines())


@pytest.mark.parametrize(
    "argv",
    [
        scripts.mpi_launcher(("mpirun", "x")),
        scripts.mpi_worker(),
        scripts.torchrun(("x",)),
        scripts.ray_head(("x",), workers=2, cpus=1, gpus=0),
        scripts.ray_worker(cpus=1, gpus=0),
    ],
    ids=["mpi launcher", "mpi worker", "torchrun", "ray head", "ray worker"],
)
def test_each_script_is_a_shell_s(argv):
    """A shell reads it without an error."""
    assert run(("/bin/sh", "-n", "-c", argv[2])).returncode == 0
