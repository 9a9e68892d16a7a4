# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a Volcano Job are called as roles, and what refers to them by their old names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.convert import ranks
from kfp_volcano.volcano.manifests.convert.program import replace_hosts, rewrite

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = ["call", "find_hosts", "rename"]

_LEADERS = ("launcher", "chief", "head", "master", "worker")
"""The roles whose first pod the others know; the first of them that a job has."""


def call(draft: Draft, role: str, drafts: Sequence[Draft], account: Account) -> None:
    """Give a role its name, and change what refers to its task by Volcano's names for it."""
    task = names.CORE if role == names.WORKER else role
    variable, new_variable = (f"VC_{name.upper().replace('-', '_')}_" for name in (draft.name, task))
    new = {variable: new_variable, f"/etc/volcano/{draft.name}.host": f"/etc/volcano/{task}.host"}
    pattern = re.compile("|".join(rf"(?<![A-Za-z0-9_]){re.escape(name)}" for name in new))
    draft.name = role
    for other in drafts:
        for key in rewrite(other, lambda text: pattern.sub(lambda found: new[found[0]], text)):
            place = other.place(*key.split(".", 1))
            account.changed(str(place), place, f"the task is called {task}: its hosts are in {new_variable}HOSTS")


def find_hosts(drafts: Sequence[Draft], tasks: Sequence[str], job: str, account: Account) -> None:
    """Put the leader's host in place of a pod's name as Volcano makes it; name those that have none."""
    leads = [draft for name in _LEADERS for draft in drafts if draft.name == name]
    leader = tasks[drafts.index(leads[0])] if leads else None
    replace_hosts(drafts, job, leader, account, types=tasks)


def rename(spec: View, drafts: Sequence[Draft], account: Account) -> None:
    """Give up the names of kfp-volcano's own tasks and those that are too long; the worker's task is `core`."""
    for index, draft in enumerate(drafts):
        name, room = draft.name, names.longest_role(ranks.size([draft]))
        if name in names.RESERVED_TASKS:
            call(draft, f"{name}s", drafts, account)
            account.changed(spec.at("tasks", index, "name"), draft.place(), f"{name} is taken: it is {name}s now")
        elif len(name) > room and name != names.WORKER:
            short = _short(name, room, {other.name for other in drafts})
            call(draft, short, drafts, account)
            why = f"is {short} now: the names of its pods would be longer than 63 characters"
            account.changed(spec.at("tasks", index, "name"), draft.place(), why)
    for draft in drafts:
        if draft.name == names.WORKER:
            call(draft, names.WORKER, drafts, account)


def _short(name: str, room: int, taken: Collection[str]) -> str:
    """A name of at most `room` characters that nobody has."""
    short, number = name[:room].strip("-"), 1
    while short in taken:
        number += 1
        end = f"-{number}"
        short = name[: room - len(end)].strip("-") + end
    return short
