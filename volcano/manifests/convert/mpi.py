# SPDX-License-Identifier: Apache-2.0
"""MPIJob (kubeflow.org/v1 and v2beta1) to a TrainingJob.

Source: v1: kubeflow/training-operator (release-1.9), pkg/apis/kubeflow.org/v1/mpi_types.go and
pkg/controller.v1/mpi/mpijob_controller.go; v2beta1: kubeflow/mpi-operator (v0.8),
pkg/apis/kubeflow/v2beta1/{types,default}.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.convert import kubeflow, ranks
from kfp_volcano.volcano.manifests.convert.assembly import new_job
from kfp_volcano.volcano.manifests.convert.metadata import read_metadata
from kfp_volcano.volcano.manifests.convert.program import SHELLS, basename, replace_hosts, texts
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.assembly import Job
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["convert", "settle_launcher", "settle_worker"]

_FILES = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f", "--default-hostfile")
"""Options whose value is a file of hosts."""
_HOSTS = (*_FILES, "--host-discovery-script")
"""The same, and that of a program that prints them."""
_ELASTIC = ("--min-np", "--max-np", "--min-num-proc", "--max-num-proc")
"""Options of Horovod's that only an elastic job has."""
_CONFIG = "/etc/mpi/"
"""Where the operators mount the hostfile, and the script by which Elastic Horovod asks for hosts."""
_IN_A_SHELL = re.compile(
    rf"(\b(?:mpirun|mpiexec)\s(?:[^;&|\n\\]|\\[\s\S])*?)"
    rf"(?<=\s)(?:{'|'.join(_FILES)})(?:\s+|=){re.escape(_CONFIG)}hostfile(?!\S)\s*"
)
"""Such an option of mpirun's in the text of a shell, and the command up to it."""
_SSHD = re.compile(r"\bsshd\b")
_V1 = "kubeflow.org/v1"


def convert(document: View) -> Job:
    """The TrainingJob of an MPIJob. Raises SpecError where it cannot be said."""
    spec, account = document.map("spec"), document.account
    first = document.peek("apiVersion") == _V1
    metadata = read_metadata(document)
    specs = spec.map("mpiReplicaSpecs")
    main = spec.text("mainContainer", to="spec.roles") or "mpi"
    drafts = kubeflow.read_replicas(specs, {"Launcher": "launcher", "Worker": "worker"}, main=(main,))
    launcher = next((draft for draft in drafts if draft.name == "launcher"), None)
    if launcher is None:
        refuse(specs.at("Launcher"), "is missing", "the launcher starts the program on the workers")
    worker = next((draft for draft in drafts if draft.name == "worker"), None)
    if worker is None:
        refuse(specs.at("Worker"), "is missing, or has no replicas", "the program runs on the workers")
    if not first and "restartPolicy" not in specs.map("Launcher"):
        launcher.restart = "OnFailure"  # DefaultLauncherRestartPolicy
    replace_hosts(drafts, metadata.name, "launcher", account)
    settle_launcher(launcher, specs, account)
    settle_worker(worker, specs, account)
    slots = spec.number("slotsPerWorker", to=worker.place("procs"))
    worker.parts["procs"] = 1 if slots is None else slots
    if spec.flag("runLauncherAsWorker"):
        worker.replicas = ranks.size([worker]) + 1
        spec.changed(
            "runLauncherAsWorker", worker.place("replicas"), "one worker more instead: the launcher only starts"
        )
        for key in ("gpu", "gpuShare", "rdma", "rdmaResource"):
            if launcher.parts["resources"].pop(key, None) is not None:
                why = "the launcher only starts: the worker in its place asks for that"
                account.revise(launcher.place("resources", key), specs.at(), worker.place("resources", key), why)
    job = new_job(metadata, "mpi", drafts)
    _how_it_starts(spec, job, first=first)
    kubeflow.read_clean_up(spec)  # v1 has it here too
    # v2beta1 runs its launcher as a Kubernetes Job.
    kubeflow.apply_run_policy(spec.map("runPolicy"), job, backoff=None if first else kubeflow.BACKOFF)
    return job


def _how_it_starts(spec: View, job: Job, *, first: bool) -> None:
    if first:
        spec.account.changed(
            spec.at(),
            "spec.mpi",
            "the launcher reaches its workers by ssh, not by kubectl exec",
            "the image needs ssh and sshd",
        )
    if path := spec.text("sshAuthMountPath", to="spec.mpi.sshPath"):
        job.mpi["sshPath"] = path
    policy = "launcherCreationPolicy"
    if spec.peek(policy) == "WaitForWorkersReady":
        spec.text(policy, to="spec.framework")
    spec.changed(policy, "spec.framework", "the launcher's program always waits until its workers answer")
    kind = spec.text("mpiImplementation")
    if kind not in (None, "OpenMPI", "Intel", "MPICH"):
        refuse(spec.at("mpiImplementation"), f"there is no {kind}", "OpenMPI, Intel or MPICH")
    if kind:
        spec.account.kept(spec.at("mpiImplementation"), "spec.framework")


def settle_launcher(launcher: Draft, source: View, account: Account) -> None:
    """See that the launcher has a command that finds its workers as a TrainingJob lets it find them."""
    command, args = launcher.parts.get("command", []), launcher.parts.get("args", [])
    if not command:
        if not args or args[0].startswith("-"):
            refuse(source.at(), "the launcher has no command", "command: [mpirun, …]: it is started by one of ours")
        why = f"{args[0]} is the command: the image's entry point does not run before it"
        account.revise(launcher.place("args"), source.at(), launcher.place("command"), why)
        command, args = args, []
    program = [*command, *args]
    found = _with_hosts(program)
    if found != program:
        why = f"the workers' hosts come by the environment: {' '.join(found[:4])} …"
        account.changed(source.at(), launcher.place("command"), why)
        if args:
            account.revise(launcher.place("args"), source.at(), launcher.place("command"), "is part of the command")
        command, args = found, []
    launcher.parts["command"], launcher.parts["args"] = command, args
    for text in texts(launcher):
        if _CONFIG in text:
            refuse(
                source.at(),
                f"the launcher reads {_CONFIG}, which its operator makes",
                f"mpirun finds its hosts by itself; for others they are in ${names.ENV_HOSTS}: host:slots,…",
            )


def _with_hosts(program: list[str]) -> list[str]:
    """A launcher's program without the operator's hostfile. Horovod, which needs one or a list, is given the list."""
    if basename(program) in SHELLS and not any("horovodrun" in word for word in program):
        return [_IN_A_SHELL.sub(r"\1", word) for word in program]
    found, skip = [], False
    for word, value in zip(program, [*program[1:], ""], strict=True):
        if skip:
            skip = False
        elif word in _HOSTS and value.startswith(_CONFIG):
            skip = True
        elif word.startswith(tuple(f"{option}={_CONFIG}" for option in _HOSTS)):
            continue
        else:
            found.append(word)
    if basename(program) != "horovodrun" or found == program:
        return found
    fixed: list[str] = []
    for index, word in enumerate(found):
        if word not in _ELASTIC and (index == 0 or found[index - 1] not in _ELASTIC):
            fixed.append(word)
    return [fixed[0], "-H", f"$({names.ENV_HOSTS})", *fixed[1:]]


def settle_worker(worker: Draft, source: View, account: Account) -> None:
    """Leave out a worker's command that only waits for the launcher: sshd is started for it."""
    words = worker.program
    if any(_SSHD.search(word) for word in words) or basename(words) in ("sleep", "tail"):
        for key in ("command", "args"):
            if worker.parts.pop(key, None):
                why = "sshd of the image is started for each worker, on port 2222"
                account.revise(worker.place(key), source.at(), worker.place(), why)
        _forget_probes(worker, source, account)


def _forget_probes(worker: Draft, source: View, account: Account) -> None:
    """A probe of sshd's port goes on working; whatever else it asks was about the command that is gone."""
    container = worker.patch.value.get("spec", {}).get("containers", {}).get("*", {})
    for probe in [key for key in container if key.endswith("Probe")]:
        socket = container[probe].get("tcpSocket") if isinstance(container[probe], dict) else None
        if not isinstance(socket, dict) or socket.get("port") != names.SSH_PORT:
            why = f"{probe} is about a command that does not run any more"
            account.changed(source.at(), worker.place("podPatch"), why, "see whether it can succeed")
