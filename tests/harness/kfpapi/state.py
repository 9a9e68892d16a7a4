# SPDX-License-Identifier: Apache-2.0
"""What a KFP backend remembers and how it answers: experiments, pipelines and versions, runs, recurring runs.

Written from kubeflow/pipelines 2.17.0, backend/src/apiserver (server/*.go, resource/resource_manager.go, list/,
filter/). Time is virtual: it goes on where the client waits.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote_plus

import yaml

__all__ = ["Backend", "Plot", "Refusal"]

Row = dict[str, Any]
EPOCH = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"}
DEFAULT_PAGE, LARGEST_PAGE = 20, 200
KEYS = {
    "experiments": {"experiment_id", "display_name", "created_at", "namespace"},
    "pipelines": {"pipeline_id", "name", "display_name", "created_at", "namespace"},
    "pipeline_versions": {"pipeline_version_id", "name", "display_name", "created_at"},
    "runs": {"run_id", "display_name", "created_at", "state", "recurring_run_id", "experiment_id"},
    "recurring_runs": {"recurring_run_id", "display_name", "created_at"},
}
"""What may be filtered and sorted by (model/*.go, …APIToModelFieldMap)."""
CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 500: 13, 503: 14}


class Refusal(Exception):  # noqa: N818 - it is an answer
    """An error as grpc-gateway writes it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message, "code": CODES[status], "message": message, "details": []}


@dataclass
class Plot:
    """What becomes of a run: its state from so many seconds after its creation on, and its tasks' states."""

    states: list[tuple[float, str]] = field(default_factory=lambda: [(0, "PENDING"), (3, "RUNNING"), (60, "SUCCEEDED")])
    tasks: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)
    """A task that is left out has no state."""
    children: dict[str, list[str]] = field(default_factory=dict)
    """The nodes below a task."""
    ending_s: float = 20.0
    """From Terminate to the end, which is FAILED (measured: 12 to 42 s)."""


@dataclass
class Backend:
    """The state, and the operations on it by the names that the API's description gives them."""

    multi_user: bool = False
    namespaces: set[str] = field(default_factory=lambda: {"vision"})
    """Those that the caller may use, where the backend serves several users."""
    plot: Plot = field(default_factory=Plot)
    now: datetime = EPOCH
    on_sleep: Callable[[], None] = lambda: None
    """Called whenever the client waits."""
    rows: dict[str, dict[str, Row]] = field(default_factory=lambda: {name: {} for name in KEYS})
    logs: dict[str, str] = field(default_factory=dict)
    """Of pods."""
    enabled_history: list[dict[str, int]] = field(default_factory=list)
    """How many recurring runs of each name were enabled, after each request."""
    deleted_with: list[str] = field(default_factory=list)
    terminated: dict[str, datetime] = field(default_factory=dict)
    _ids: Iterable[int] = field(default_factory=itertools.count)

    # --- time ---

    def clock(self) -> float:
        """For the client: seconds."""
        return self.now.timestamp()

    def sleep(self, seconds: float) -> None:
        """For the client: time goes on, at once."""
        self.now += timedelta(seconds=seconds)
        self.on_sleep()

    # --- experiments ---

    def experiment_service_create_experiment(self, body: Row) -> Row:
        namespace = self._namespace(body.get("namespace"))
        if not body.get("display_name"):
            raise Refusal(400, "Validate experiment request failed.: InvalidInputError: Experiment's name is empty")
        self._unique("experiments", body, "display_name", namespace)
        return self._store(
            "experiments", "experiment_id", {**body, "namespace": namespace, "storage_state": "AVAILABLE"}
        )

    def experiment_service_list_experiments(self, namespace: str = "", **query: str) -> Row:
        at = self._namespace(namespace)
        return self._listing("experiments", query, lambda row: row["namespace"] == at)

    # --- pipelines ---

    def pipeline_service_create_pipeline(self, body: Row) -> Row:
        namespace = self._namespace(body.get("namespace"))
        name = body.get("name") or body.get("display_name")
        if not name:
            raise Refusal(400, "Failed to create a pipeline: InvalidInputError: pipeline's name cannot be empty")
        body = {"display_name": name, **body, "name": name, "namespace": namespace}
        self._unique("pipelines", body, "name", namespace)
        return self._store("pipelines", "pipeline_id", body)

    def pipeline_service_list_pipelines(self, namespace: str = "", **query: str) -> Row:
        at = self._namespace(namespace)
        return self._listing("pipelines", query, lambda row: row["namespace"] == at)

    def pipeline_service_list_pipeline_versions(self, pipeline_id: str, **query: str) -> Row:
        self._row("pipelines", pipeline_id)
        return self._listing("pipeline_versions", query, lambda row: row["pipeline_id"] == pipeline_id)

    def pipeline_service_get_pipeline_version(self, pipeline_id: str, pipeline_version_id: str) -> Row:
        self._row("pipelines", pipeline_id)
        return self._row("pipeline_versions", pipeline_version_id)

    def upload_pipeline_version(
        self, uploadfile: tuple[str, bytes], pipelineid: str = "", name: str = "", description: str = "", **_: str
    ) -> Row:
        filename, content = uploadfile
        if not filename.endswith((".yaml", ".yml")) or not pipelineid:
            raise Refusal(400, "Failed to create a pipeline version")
        self._row("pipelines", pipelineid)
        documents = list(yaml.safe_load_all(content))
        if not {"pipelineInfo", "root", "schemaVersion"} <= documents[0].keys():
            raise Refusal(400, "Failed to create a pipeline version as template is broken")
        for row in self.rows["pipeline_versions"].values():
            if (row["pipeline_id"], row["name"]) == (pipelineid, name):
                raise Refusal(409, "Failed to create a pipeline version")
        spec = documents[0] if len(documents) == 1 else {"pipeline_spec": documents[0], "platform_spec": documents[1]}
        row = {"pipeline_id": pipelineid, "name": name, "display_name": name, "description": description}
        return self._store("pipeline_versions", "pipeline_version_id", {**row, "pipeline_spec": spec})

    # --- runs ---

    def run_service_create_run(self, body: Row, experiment_id: str = "") -> Row:
        del experiment_id
        if not body.get("display_name"):
            raise Refusal(400, "Failed to create a run: The run name is empty. Please specify a valid name")
        self._experiment(body)
        self._parameters(body)
        row = {**body, "storage_state": "AVAILABLE", "state": "PENDING", "plot": self.plot}
        return self._run(self._store("runs", "run_id", row))

    def run_service_get_run(self, run_id: str, **_: str) -> Row:
        return self._run(self._row("runs", run_id))

    def run_service_list_runs(self, namespace: str = "", experiment_id: str = "", **query: str) -> Row:
        if experiment_id:
            self._row("experiments", experiment_id)
        else:
            self._namespace(namespace)
        answer = self._listing(
            "runs", query, lambda row: not experiment_id or row.get("experiment_id") == experiment_id
        )
        return {**answer, "runs": [self._run(row) for row in answer["runs"]]}

    def run_service_terminate_run(self, run_id: str, **_: str) -> Row:
        if self._run(self._row("runs", run_id))["state"] in ENDED | {"CANCELING"}:
            raise Refusal(400, f"Failed to terminate a run {run_id}. Row not found")
        self.terminated[run_id] = self.now
        return {}

    # --- recurring runs ---

    def recurring_run_service_create_recurring_run(self, body: Row) -> Row:
        if not body.get("display_name"):
            raise Refusal(400, "Recurring run name is empty. Please specify a valid name")
        experiment = self._experiment(body)
        if not 1 <= int(body.get("max_concurrency", 0)) <= 10:
            raise Refusal(400, "Max concurrency of a recurring run must be at least 1 and at most 10.")
        trigger = body.get("trigger") or {}
        cron = (trigger.get("cron_schedule") or {}).get("cron")
        if cron is not None and len(cron.split()) not in (5, 6):
            raise Refusal(400, f"Schedule cron is not a supported format. Error: Expected 5 to 6 fields: {cron}")
        self._parameters(body)
        mode = body.pop("mode", "DISABLE")
        row = {**body, "namespace": experiment["namespace"], "status": f"{mode}D", "mode": mode}
        return self._store("recurring_runs", "recurring_run_id", row)

    def recurring_run_service_list_recurring_runs(
        self, namespace: str = "", experiment_id: str = "", **query: str
    ) -> Row:
        at = None if experiment_id else self._namespace(namespace)
        answer = self._listing("recurring_runs", query, lambda row: at is None or row["namespace"] == at)
        return {"recurringRuns": answer.pop("recurring_runs"), **answer}

    def recurring_run_service_enable_recurring_run(self, recurring_run_id: str) -> Row:
        self._row("recurring_runs", recurring_run_id).update(status="ENABLED", mode="ENABLE")
        return {}

    def recurring_run_service_disable_recurring_run(self, recurring_run_id: str) -> Row:
        self._row("recurring_runs", recurring_run_id).update(status="DISABLED", mode="DISABLE")
        return {}

    def recurring_run_service_delete_recurring_run(self, recurring_run_id: str, propagation_policy: str = "") -> Row:
        self._row("recurring_runs", recurring_run_id)
        self.deleted_with.append(propagation_policy)
        del self.rows["recurring_runs"][recurring_run_id]
        return {}

    def healthz_service_get_healthz(self) -> Row:
        return {"multi_user": self.multi_user, "pipeline_store": "database"}

    # --- for tests ---

    def fire(self, name: str) -> str:
        """What the controller does when a recurring run is due; returns the run's id."""
        (recurring,) = (row for row in self.rows["recurring_runs"].values() if row["display_name"] == name)
        kept = ("pipeline_version_reference", "runtime_config", "experiment_id", "recurring_run_id", "display_name")
        body = {key: recurring[key] for key in kept if key in recurring}
        return str(self._store("runs", "run_id", {**body, "state": "PENDING", "plot": self.plot})["run_id"])

    def log(self, pod: str) -> str | Row:
        """What a pod printed; where there is none the backend says so with status 200 (server/run_log_server.go)."""
        return self.logs.get(pod, {"error_message": "Failed to read logs", "error_details": ""})

    def note(self) -> None:
        """Keep count, after each request."""
        counts: dict[str, int] = {}
        for row in self.rows["recurring_runs"].values():
            counts[row["display_name"]] = counts.get(row["display_name"], 0) + (row["status"] == "ENABLED")
        self.enabled_history.append(counts)

    # --- the inside ---

    def _namespace(self, given: str | None) -> str:
        if not self.multi_user:
            return ""
        if not given:
            raise Refusal(400, "InvalidInputError: Namespace cannot be empty in multi-user mode")
        if given not in self.namespaces:
            reason = f"User 'ada@example.org' is not authorized with reason: (request: namespace {given})"
            raise Refusal(403, f"Failed to authorize with API: PermissionDeniedError: {reason}")
        return given

    def _experiment(self, body: Row) -> Row:
        if not body.get("experiment_id"):
            if self.multi_user:
                raise Refusal(400, "InvalidInputError: Experiment id can not be empty in multi-user mode")
            return {"namespace": ""}
        return self._row("experiments", body["experiment_id"])

    def _parameters(self, body: Row) -> None:
        """template/v2_template.go, validatePipelineJobInputs."""
        reference = body.get("pipeline_version_reference")
        if reference is None:
            raise Refusal(400, "Failed to create a run: InvalidInputError: no pipeline")
        self._row("pipelines", reference["pipeline_id"])
        version = self._row("pipeline_versions", reference["pipeline_version_id"])
        spec = version["pipeline_spec"].get("pipeline_spec", version["pipeline_spec"])
        declared = (spec["root"].get("inputDefinitions") or {}).get("parameters") or {}
        given = (body.get("runtime_config") or {}).get("parameters") or {}
        for name, parameter in declared.items():
            if name not in given and not parameter.get("isOptional") and "defaultValue" not in parameter:
                raise Refusal(
                    400, f"InvalidInputError: parameter {name} is not optional, yet has neither default value"
                )
            kinds = {"STRING": str, "BOOLEAN": bool, "LIST": list, "STRUCT": dict}
            kind = kinds.get(parameter["parameterType"], (int, float))
            if name in given and (not isinstance(given[name], kind) or (kind is not bool and given[name] is True)):
                raise Refusal(400, f"InvalidInputError: input parameter {name} requires another type")
        extra = [name for name in given if name not in declared]
        if extra:
            raise Refusal(400, f"InvalidInputError: parameter(s) provided are not required by pipeline: {extra}")

    def _run(self, row: Row) -> Row:
        """A run as it stands now."""
        plot: Plot = row["plot"]
        created = datetime.fromisoformat(row["created_at"])
        ended = self.terminated.get(row["run_id"])
        until = ended or self.now
        past = (until - created).total_seconds()
        history = [(at, state) for at, state in plot.states if at <= past] or [(0.0, "PENDING")]
        state = history[-1][1]
        over = ended is not None and (self.now - ended).total_seconds() >= plot.ending_s
        if ended is not None and state not in ENDED:
            state = "FAILED" if over else "CANCELING"
            history = [*history, (past, "FAILED")] if over else history
        tasks = []
        for at, (name, states) in enumerate(plot.tasks.items()):
            reached = [each for seconds, each in states if seconds <= past]
            if reached:
                each = "FAILED" if over and reached[-1] not in ENDED else reached[-1]
                begun = (created + timedelta(seconds=states[0][0])).isoformat()
                task = {"task_id": f"{row['run_id']}-{at}", "display_name": name, "start_time": begun}
                task |= {"state": each} if each else {}
                task |= {"child_tasks": [{"pod_name": child} for child in plot.children.get(name, ())]}
                tasks.append({**task, "run_id": row["run_id"], "end_time": "1970-01-01T00:00:00Z"})
        shown = {key: value for key, value in row.items() if key != "plot"}
        shown |= {"state": state, "finished_at": "1970-01-01T00:00:00Z"}
        shown["state_history"] = [
            {"update_time": (created + timedelta(seconds=seconds)).isoformat(), "state": each}
            for seconds, each in history
        ]
        return shown | ({"run_details": {"task_details": tasks}} if tasks else {})

    def _unique(self, table: str, body: Row, key: str, namespace: str) -> None:
        for row in self.rows[table].values():
            if (row[key], row["namespace"]) == (body[key], namespace):
                raise Refusal(409, f"AlreadyExistError: {table[:-1]} {body[key]} already exists")

    def _store(self, table: str, key: str, row: Row) -> Row:
        at = str(uuid.UUID(int=next(iter(self._ids))))
        self.now += timedelta(milliseconds=1)
        stored = {**row, key: at, "created_at": self.now.isoformat()}
        self.rows[table][at] = stored
        return stored

    def _row(self, table: str, at: str) -> Row:
        if at not in self.rows[table]:
            raise Refusal(404, f"Failed to get: ResourceNotFoundError: {table[:-1]} {at} not found")
        return self.rows[table][at]

    def _listing(self, table: str, query: dict[str, str], wanted: Callable[[Row], bool]) -> Row:
        rows = [row for row in self.rows[table].values() if wanted(row)]
        # The backend unquotes a filter that HTTP has unquoted already (list_request_util.go, parseAPIFilter).
        for predicate in json.loads(unquote_plus(query.get("filter") or "{}")).get("predicates", ()):
            key = predicate["key"]
            if key not in KEYS[table] or predicate["operation"] != "EQUALS":
                raise Refusal(400, f"InvalidInputError: no such predicate: {predicate}")
            rows = [row for row in rows if row.get(key) == predicate["stringValue"]]
        key, _, order = (query.get("sort_by") or "created_at").partition(" ")
        if key not in KEYS[table] or order not in ("", "asc", "desc"):
            raise Refusal(400, f"InvalidInputError: Cannot sort on field {key} {order}")
        rows.sort(key=lambda row: row[key], reverse=order == "desc")
        size = min(int(query.get("page_size") or 0) or DEFAULT_PAGE, LARGEST_PAGE)
        token = query.get("page_token")
        start = json.loads(base64.b64decode(token)) if token else 0
        following = base64.b64encode(str(start + size).encode()).decode() if start + size < len(rows) else ""
        answer: Row = {table: rows[start : start + size], "total_size": len(rows)}
        return answer | ({"next_page_token": following} if following else {})
