# SPDX-License-Identifier: Apache-2.0
"""Runs at a backend: made, followed to their end, terminated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import kfp_server_api

from kfp_volcano.errors import ClusterError, ConflictError, InvalidError, SpecError
from kfp_volcano.pipelines.backend.connection import matching
from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.pipelines.backend.connection import Connection
    from kfp_volcano.pipelines.backend.versions import Version

__all__ = ["Ending", "Run", "RunEvent", "create"]

SOON_S, LATER_S = 2.0, 10.0
"""Between two looks at a run: while something changes, and when nothing has for a while."""
PATIENCE_S = 600.0
"""For how long a backend may be silent while a run is followed."""
_CANCELING, _FAILED = "CANCELING", "FAILED"
_DRIVER = re.compile(r"(?:^|-)(?:driver|executor)$|^root$")
_EXECUTOR = "executor"
_TEMPLATES = ("system-container-impl", "retry-system-container-impl")
"""Of a step, and of one with `set_retry` (backend/src/v2/compiler/argocompiler/container.go)."""
_LAUNCHER = re.compile(
    r"[IWEF][0-9]{4} [0-9:.]+ +[0-9]+ \S+\.go:[0-9]+\]|time=\S+ level=|\[KFP Executor |Error: exit status "
)
_LAUNCHER_ERROR = re.compile(r"[EF][0-9]{4} ")
_ATTEMPT = re.compile(r"(?P<name>.+)\((?P<number>\d+)\)$")


class Ending(Enum):
    """How a run ended, in KFP's words; the code is what the command line exits with."""

    SUCCEEDED = "SUCCEEDED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def exit_code(self) -> int:
        """0 done, 1 failed, 4 cancelled."""
        return {"FAILED": 1, "CANCELED": 4}.get(self.value, 0)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """That the run or one of its tasks has come to a state."""

    task: str
    """The task's display name; empty for the run itself."""
    state: str
    """KFP's word: PENDING, RUNNING, SUCCEEDED, SKIPPED, FAILED, CANCELING, CANCELED, PAUSED."""
    note: str = ""


class Run:
    """One run."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self.run_id = run_id
        self.url = f"{connection.ui}/#/runs/details/{run_id}"
        """Its page, where the host serves the UI too or the UI's URL is known."""
        self.ending: Ending | None = None
        """How it ended, as far as is known."""
        self._canceling = False
        self._told: dict[str, str] = {}
        """States by task id, the run's own under the empty one."""

    def __repr__(self) -> str:
        return f"Run({self.run_id!r})"

    def read(self, *, patience_s: float | None = None) -> Any:
        """The run as the backend has it, a `V2beta1Run`. Raises ClusterError."""
        run = self._connection.read(
            lambda: self._connection.runs.run_service_get_run(self.run_id), patience_s=patience_s
        )
        state = str(run.state)
        self._canceling = self._canceling or state == _CANCELING or _was_canceling(run)
        if state in Ending.__members__:
            # A terminated run ends as FAILED; only who has seen it on the way can tell.
            self.ending = Ending.CANCELED if state == _FAILED and self._canceling else Ending(state)
        return run

    def follow(self) -> Iterator[RunEvent]:
        """What happens, as it comes, until the run has ended; then `ending` says how.

        Followed again, it goes on where it was left.

        Raises ClusterError: the run is gone, or the backend has been silent for ten minutes.
        """
        pause_s = SOON_S
        while True:
            events = list(_events(self.read(patience_s=PATIENCE_S), self._told))
            yield from events
            if self.ending is not None:
                return
            pause_s = SOON_S if events else min(LATER_S, pause_s * 1.2)
            self._connection.patience.sleep(pause_s)

    def wait(self) -> Ending:
        """Follow to the end and say how it ended. Raises ClusterError as `follow` does."""
        for _ in self.follow():
            pass
        assert self.ending is not None  # noqa: S101 - `follow` ends with it
        return self.ending

    def terminate(self) -> bool:
        """End the run: its steps are stopped, its exit handler runs. False where it has ended already."""
        try:
            self._connection.change(lambda: self._connection.runs.run_service_terminate_run(self.run_id))
        except (InvalidError, ConflictError):
            self.read()
            if self.ending is None and not self._canceling:
                raise
            return self.ending is None
        self._canceling = True
        return True

    def failures(self) -> list[str]:
        """The names of the tasks that have failed; empty where the backend names none."""
        return sorted({name for task in _tasks(self.read()) if str(task.state) == _FAILED and (name := _name(task))})

    def last_words(self, lines: int = 10) -> list[str]:
        """What the steps that failed printed last, as far as the backend still has it; empty where it has nothing.

        Its API names neither pods nor reasons, but it serves the logs of pods, and a pod is called after its Workflow,
        KFP's template and its node's number.
        """
        nodes = [
            str(child.pod_name)
            for task in _tasks(self.read())
            if task.display_name == _EXECUTOR and str(task.state) == _FAILED
            for child in task.child_tasks or ()
        ]
        pods = [
            f"{workflow}-{template}-{number}"
            for workflow, _, number in (node.rpartition("-") for node in nodes)
            for template in _TEMPLATES
        ]
        found = [line for pod in pods for line in self._log(pod)[-lines:]]
        return found[-lines:]

    def _log(self, pod: str) -> list[str]:
        """The lines of a step's pod, without what KFP's launcher says; none where there is no such pod."""
        try:
            text = self._connection.raw(f"/apis/v1alpha1/runs/{self.run_id}/nodes/{pod}/log")
        except ClusterError:
            return []
        return _lines(text) if isinstance(text, str) else []  # what is not there is JSON, with status 200


def create(
    connection: Connection,
    version: Version,
    *,
    name: str,
    experiment: str,
    parameters: Mapping[str, Any],
    service_account: str | None,
    pipeline_root: str | None,
    token: str,
) -> Run:
    """Start a run, once. `token`, unlike any other's, finds it again where the backend's answer was lost.

    Caching stays what the pipeline says: KFP's switch for a whole run would turn it on where the author turned it off.
    """
    experiment_id = experiment_of(connection, experiment)
    said = f"by kfp-volcano {__version__}, {token}"
    body = kfp_server_api.V2beta1Run(
        experiment_id=experiment_id,
        display_name=name,
        description=said,
        pipeline_version_reference=version.reference,
        runtime_config=kfp_server_api.V2beta1RuntimeConfig(
            parameters=dict(parameters), pipeline_root=pipeline_root or None
        ),
        service_account=service_account or None,
    )

    def find() -> Any | None:
        listing = connection.pages(
            connection.runs.run_service_list_runs,
            "runs",
            experiment_id=experiment_id,
            filter=matching("display_name", name),
        )
        return next((run for run in listing if run.description == said), None)

    run = connection.create(lambda: connection.runs.run_service_create_run(run=body), find)
    if not run.run_id:
        raise ClusterError(f"the KFP backend at {connection.host} has answered without a run: is it KFP?")
    return Run(connection, run.run_id)


def experiment_of(connection: Connection, name: str) -> str:
    """The id of the experiment of that name, which is made if it is not there. Raises SpecError for an empty one."""
    if not name.strip():
        raise SpecError("an experiment has a name", source="experiment")
    query = {"filter": matching("display_name", name), **connection.scope}

    def find() -> Any | None:
        listing = connection.pages(connection.experiments.experiment_service_list_experiments, "experiments", **query)
        return next(listing, None)

    body = kfp_server_api.V2beta1Experiment(display_name=name, namespace=connection.namespace)
    found = find() or connection.create_or_find(
        lambda: connection.experiments.experiment_service_create_experiment(experiment=body), find
    )
    return str(found.experiment_id)


def _lines(text: str) -> list[str]:
    """What a program printed, else the errors of KFP's launcher: then it did not come to that."""
    lines = list(_own_lines(text))
    return lines or [line.partition("] ")[2] for line in text.splitlines() if _LAUNCHER_ERROR.match(line)]


def _own_lines(text: str) -> Iterator[str]:
    """What a program printed, without what KFP's launcher and executor, and Argo's, say around it."""
    dumping = False
    for line in text.splitlines():
        dumping = dumping or line.endswith("Got executor_input:")
        if not dumping and line.strip() and not _LAUNCHER.match(line):
            yield line
        dumping = dumping and line != "}"


def _tasks(run: Any) -> list[Any]:
    """The nodes of its Workflow, in the order of their beginning; those that were left out have no state."""
    details = (run.run_details.task_details if run.run_details else None) or []
    return sorted((task for task in details if task.state), key=lambda each: str(each.start_time or ""))


def _events(run: Any, told: dict[str, str]) -> Iterator[RunEvent]:
    """Tasks whose state has changed, and the run, if its own has; `told` is kept up.

    A run has no state for a moment, before its Workflow is seen.
    """
    tasks = [(task.task_id, name, task) for task in _tasks(run) if (name := _name(task))]
    for key, name, node in [*tasks, ("", "", run)]:
        if node.state and told.get(key) != str(node.state):
            told[key] = str(node.state)
            yield RunEvent(name, str(node.state), "" if node.error is None else str(node.error.message or ""))


def _name(task: Any) -> str:
    """A task as its author calls it; empty for what KFP adds.

    That is drivers, executors, a first attempt beside its task, and the Workflow itself, after which the others'
    nodes are called.
    """
    name, number = str(task.display_name or ""), None
    attempt = _ATTEMPT.fullmatch(name)
    if attempt:
        name, number = attempt["name"], int(attempt["number"])
    workflow = any(str(child.pod_name).rpartition("-")[0] == name for child in task.child_tasks or ())
    if workflow or _DRIVER.search(name) or number == 0:
        return ""
    return f"{name} (attempt {number + 1})" if number else name


def _was_canceling(run: Any) -> bool:
    return any(str(each.state) in (_CANCELING, "CANCELED") for each in run.state_history or ())
