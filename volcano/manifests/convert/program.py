# SPDX-License-Identifier: Apache-2.0
"""What the programs of a job refer to: variables and host names that its operator provides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests.convert.ranks import LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import Account

__all__ = ["SHELLS", "basename", "mentions", "replace_hosts", "rewrite", "texts"]


SHELLS = ("sh", "bash", "dash", "zsh")
_TYPES = ("master", "worker", "chief", "ps", "evaluator", "launcher")
"""The types of replica of Kubeflow's operators."""


def texts(draft: Draft) -> Iterator[str]:
    """The texts of a role's command, arguments and environment."""
    yield from draft.program
    yield from (value for value in draft.env.values() if isinstance(value, str))


def mentions(drafts: Iterable[Draft], variables: str) -> bool:
    """Whether a text refers to a variable (a pattern of names), as Kubernetes or a shell would replace it."""
    pattern = re.compile(rf"\$[({{]?(?:{variables})(?![A-Za-z0-9_])")
    return any(pattern.search(text) for draft in drafts for text in texts(draft))


def basename(words: list[str]) -> str:
    """The name of the program that a command starts."""
    return words[0].rsplit("/", 1)[-1] if words else ""


def rewrite(draft: Draft, change: Callable[[str], str]) -> list[str]:
    """Change the texts of a role's programs and environment; gives the keys under which something changed."""
    changed = []
    for key in ("command", "args"):
        old = draft.parts.get(key, [])
        new = [change(text) for text in old]
        if new != old:
            draft.parts[key] = new
            changed.append(key)
    for name, value in draft.env.items():
        if isinstance(value, str) and change(value) != value:
            draft.env[name] = change(value)
            changed.append(f"env.{name}")
    return changed


def replace_hosts(
    drafts: Iterable[Draft], job: str, leader: str | None, account: Account, *, types: Sequence[str] = _TYPES
) -> None:
    """Put the leader's host in place of `<job>-<leader>-0`; name the other pods' hosts, which have none.

    The operators' pods, and their hosts, are called `<job>-<type>-<index>` (`GenGeneralName`,
    kubeflow/training-operator, pkg/controller.v1/common/util.go; `MakePodName`, volcano-sh/volcano,
    pkg/controllers/job/helpers/helpers.go).
    """
    tail = r"(?:\.[-a-z0-9]+(?:\.svc(?:\.cluster\.local)?)?)?(?![-A-Za-z0-9])"
    first = re.compile(rf"(?<![-A-Za-z0-9]){re.escape(job)}-{re.escape(leader)}-0{tail}" if leader else r"(?!)")
    kinds = "|".join(map(re.escape, types))
    other = re.compile(rf"(?<![-A-Za-z0-9]){re.escape(job)}-(?:{kinds})-[0-9]+{tail}")
    for draft in drafts:
        for key in rewrite(draft, lambda text: first.sub(lambda _: LEADER, text)):
            place = draft.place(*key.split(".", 1))
            account.changed(str(place), place, f"the host {job}-{leader}-0 is {LEADER} now: each run's Job has a name")
        for text in texts(draft):
            for found in other.findall(text):
                account.lost(
                    str(draft.place()),
                    f"the program refers to the pod {found}, which will be called otherwise",
                    "find peers by VC_<TASK>_HOSTS, which Volcano sets",
                )
