# SPDX-License-Identifier: Apache-2.0
"""What a KFP task says of its pods (`dsl.TaskConfig`), said of the workers of a TrainingJob.

Two may speak of one thing: the spec and the task. What one of them leaves open the other fills in; lists are joined; a
contradiction is refused, for whichever won, somebody would be surprised. Variables of the environment are the
exception: KFP adds some by itself (proxies), so there the spec's word counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.names import WORKER
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.wire import in_order
from kfp_volcano.schemas.wording import dotted, shown
from kfp_volcano.volcano.manifests.convert.draft import Draft
from kfp_volcano.volcano.manifests.convert.environment import read_environment
from kfp_volcano.volcano.manifests.convert.pod import read_pod
from kfp_volcano.volcano.manifests.convert.resources import read_resources
from kfp_volcano.volcano.manifests.convert.source import Account

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.schemas.structure import Path

__all__ = ["with_task_config"]

_TASK: Path = ("task",)
_POD = {"affinity": "affinity", "tolerations": "tolerations", "node_selector": "nodeSelector", "volumes": "volumes"}
_CONTAINER = {"env": "env", "resources": "resources", "volume_mounts": "volumeMounts"}
_COMPUTING = ("cpu", "memory")
_WHOLE = ("nodeAffinity", "podAffinity", "podAntiAffinity")
"""Parts that are one statement: terms of an affinity are alternatives. So is a volume, which has one source."""


def with_task_config(spec: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The TrainingJob, on the wire, with a task's settings for its workers.

    Args:
        spec: A TrainingJob that is valid by itself.
        config: The fields of `dsl.TaskConfig` that say something, in the JSON of Kubernetes' API.

    Raises:
        SpecError: Lists all that cannot be carried over, and all in which the spec and the task disagree. What the
            whole then breaks of the TrainingJob's rules is for whoever validates it.
    """
    roles = spec["spec"]["roles"]
    name = WORKER if WORKER in roles else in_order(roles)[0]
    added = _role(config, name)
    own = _own(spec["spec"], roles[name], added)
    resources = {**added.get("resources", {}), **_computing(config.get("resources") or {}, own.get("resources", {}))}
    environment = {key: value for key, value in added.get("env", {}).items() if key not in own.get("env", {})}
    added = {**added, "resources": resources, "env": environment}
    problems: list[Problem] = []
    joined = _joined(own, {key: part for key, part in added.items() if part}, ("spec", "roles", name), problems)
    if problems:
        raise SpecError(problems, source="the task's settings")
    return {**spec, "spec": {**spec["spec"], "roles": {**roles, name: joined}}}


def _own(spec: Mapping[str, Any], role: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """A role with what the spec says for all roles, of that which the task speaks of too."""
    own = dict(role)
    for key in ("env", "volumes"):
        common = {name: part for name, part in spec.get(key, {}).items() if name in added.get(key, {})}
        own[key] = {**common, **role.get(key, {})}
    placement, said = spec.get("placement", {}), role.get("placement", {})
    common = {key: placement[key] for key in added.get("placement", {}) if key in placement}
    labels = {**common.get("nodeSelector", {}), **said.get("nodeSelector", {})}
    own["placement"] = {**common, **said, **({"nodeSelector": labels} if labels else {})}
    return {key: part for key, part in own.items() if part not in ({}, [])}


def _role(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings in the words of a role of that name, but for cpu and memory."""
    account = Account()
    config = {**_without_null(config), "resources": _devices(config.get("resources") or {})}
    pod, container = (
        account.open({field: config[key] for key, field in fields.items() if config.get(key)}, _TASK)
        for fields in (_POD, _CONTAINER)
    )
    draft = Draft(name=name)
    read_environment(container, draft)
    read_resources(container.map("resources"), draft)
    read_pod(pod, draft, container=container)
    draft.patch.settle(draft, account)
    account.close()
    lost = [Problem(entry.path, entry.why, entry.remedy) for entry in account.entries if entry.outcome == "lost"]
    if lost:
        raise SpecError(lost, source="the task's settings")
    return {**draft.parts, "podPatch": draft.patch.written(name)}


def _without_null(value: Any) -> Any:
    """What Go writes for what nobody said is as good as nothing."""
    if isinstance(value, dict):
        return {key: _without_null(part) for key, part in value.items() if part is not None}
    return [_without_null(part) for part in value] if isinstance(value, list) else value


def _devices(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """A container's resources without cpu and memory."""
    return {
        kind: {key: amount for key, amount in part.items() if key not in _COMPUTING} if isinstance(part, dict) else part
        for kind, part in amounts.items()
    }


def _computing(amounts: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and limits of cpu and memory, for a role whose resources say what is `said`."""
    requests, limits = ((amounts.get(key) or {}) for key in ("requests", "limits"))
    found: dict[str, Any] = {}
    for key in _COMPUTING:
        asked, limit = requests.get(key), limits.get(key)
        if asked or (limit and key not in said):  # a limit alone is the request too, where nothing else is
            found[key] = asked or limit
        reserved = said.get("reserved") and _same_amount(limit, found.get(key, said.get(key)))
        if limit and not reserved:
            found.setdefault("limits", {})[key] = limit
    return found


def _joined(own: Any, added: Any, path: Path, problems: list[Problem]) -> Any:
    whole = path[-1] in _WHOLE or path[-2:-1] == ("volumes",)
    if isinstance(own, dict) and isinstance(added, dict) and not whole:
        joined = dict(own)
        for key, value in added.items():
            joined[key] = _joined(own[key], value, (*path, key), problems) if key in own else value
        return joined
    if isinstance(own, list) and isinstance(added, list):
        return [*own, *(entry for entry in added if entry not in own)]
    if own != added and not _same_amount(own, added):
        said = f"the spec says {shown(own)}, the task {shown(added)}"
        problems.append(Problem(dotted(path), said, "say it in one place"))
    return own


def _same_amount(own: Any, added: Any) -> bool:
    if not isinstance(own, str | int | float) or not isinstance(added, str | int | float):
        return False
    try:
        return quantity(own) == quantity(added)
    except (ValueError, ArithmeticError):  # one of them is no amount
        return False
