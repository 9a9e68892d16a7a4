# SPDX-License-Identifier: Apache-2.0
"""Jobs of a master and workers whose pods are told their rank: the master's is 0, the workers' follow.

A TrainingJob counts the pods of each role from 0, and an environment cannot add 1. So master and workers become one
role where their pods are alike. Where they are not, a worker's command is started by a shell that adds up; where only
the image knows the command, each worker becomes a role of its own.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["INDEX", "LEADER", "merged", "ranked", "size", "tell"]

INDEX = f"$({names.ENV_TASK_INDEX})"
"""A pod's index in its role, as Kubernetes puts it into the text of an environment."""
LEADER = f"$({names.ENV_LEADER})"
"""The host of the first pod of the leading role."""

_MOST_SINGLE = 16
"""Workers that may become roles of their own."""


def size(drafts: Sequence[Draft]) -> int:
    """The pods of all roles."""
    return sum(draft.replicas for draft in drafts if isinstance(draft.replicas, int))


def beside(draft: Draft, variables: Iterable[str]) -> list[str]:
    """The other containers of a role's pods that refer to one of the variables."""
    spec = draft.patch.value.get("spec", {})
    pattern = re.compile(rf"\$[({{]?(?:{'|'.join(variables)})(?![A-Za-z0-9_])")
    others = [*spec.get("containers", {}).get("+", []), *(spec.get("initContainers") or [])]
    return [str(other.get("name")) for other in others if isinstance(other, dict) and pattern.search(json.dumps(other))]


def tell(draft: Draft, variables: Mapping[str, str], account: Account) -> None:
    """Give a role the environment that the operator gives its pods; like the operator's, it wins over the user's."""
    for container in beside(draft, variables):
        account.lost(
            str(draft.place("podPatch")),
            f"the container {container} refers to variables that only the training container gets",
            "set them there too",
        )
    for name, value in variables.items():
        place = draft.place("env", name)
        if draft.env.get(name, value) != value:
            account.changed(str(place), place, "is overridden, as by the operator")
        draft.env[name] = value


def merged(drafts: Sequence[Draft], source: View, account: Account) -> Draft | None:
    """Master and workers as the one role `worker`; None where their pods are not alike."""
    first, *others = drafts
    if any(other.template() != first.template() for other in others):
        return None
    if others:
        account.changed(
            source.at(),
            first.place("replicas"),
            "master and workers are one role, for their pods are alike; the first of them leads",
        )
    first.replicas = size(drafts)
    first.name = "worker"
    for other in others:
        other.name, other.shared = first.name, first.shared
        first.twins.append(other)
        first.patch.adopt(other.patch)
    return first


def ranked(drafts: Sequence[Draft], ranks: Sequence[str], source: View, account: Account) -> list[Draft]:
    """The roles of master and workers, with each pod's rank in the variables `ranks`.

    Raises SpecError where there are several masters, or too many workers whose command only their image knows.
    """
    one = merged(drafts, source, account)
    if one is not None:
        tell(one, dict.fromkeys(ranks, INDEX), account)
        return [one]
    master, worker = drafts
    if master.replicas != 1:
        refuse(source.at(), f"has {master.replicas} masters", "one: it has rank 0")
    tell(master, dict.fromkeys(ranks, "0"), account)
    master.parts["success"] = True  # as the operators have it
    if worker.replicas == 1:
        tell(worker, dict.fromkeys(ranks, "1"), account)
        return [master, worker]
    if "command" in worker.parts:
        exports = " ".join(f"{name}=$(({names.ENV_TASK_INDEX} + 1))" for name in ranks)
        worker.parts["command"] = ["/bin/sh", "-c", f'export {exports}; exec "$@"', "sh", *worker.parts["command"]]
        account.changed(
            source.at(),
            worker.place("command"),
            f"the workers' rank follows the master's: a shell adds 1 to their index for {' and '.join(ranks)}",
            "the workers' image needs /bin/sh",
        )
        return [master, worker]
    return [master, *_single(worker, ranks, source, account)]


def _single(worker: Draft, ranks: Sequence[str], source: View, account: Account) -> list[Draft]:
    count = int(worker.replicas) if isinstance(worker.replicas, int) else 0
    if count > _MOST_SINGLE:
        refuse(
            source.at(),
            f"its {count} workers differ from the master, and without a command nothing can tell them their ranks",
            "write the image's entry point as the workers' command, or make the two pod templates alike",
        )
    account.changed(
        source.at(),
        worker.place(),
        "each worker is a role of its own: only the image knows the command that its rank would be told to",
        "write the image's entry point as the workers' command, and convert again",
    )
    drafts, parts = [], worker.parts
    for rank in range(1, count + 1):
        single = worker if rank == 1 else copy.copy(worker)
        single.parts = copy.deepcopy(parts)
        single.shared = set()
        single.name, single.replicas = f"worker-{rank}", 1
        tell(single, dict.fromkeys(ranks, str(rank)), account)
        drafts.append(single)
    return drafts
