# SPDX-License-Identifier: Apache-2.0
"""The plugins of a Volcano Job and their arguments, each accounted for.

Source: volcano-sh/volcano (v1.15), pkg/controllers/job/plugins; arguments are read by Go's package flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["FRAMEWORKS", "Plugin", "read_plugins"]

FRAMEWORKS = ("pytorch", "tensorflow", "mpi", "ray")
"""The plugins that make the pods of a framework find each other; the first that is there decides."""
_TARGETS = {**dict.fromkeys((*FRAMEWORKS, "ssh", "svc"), "spec.framework"), "env": "spec.env"}
"""The plugins that have a counterpart, and where it stands."""
_NOT_ELSEWHERE = "no part of a TrainingJob does what this plugin does"
_LOST = {"hcclrank": ("the annotation hccl/rankIndex is not set", "ranks from KFP_VOLCANO_TASK_INDEX")}
_PORT = "kfp-volcano chooses the port, and tells the programs"
_WAIT = "no init container waits for the master: the programs wait for each other"
_ARGUMENTS = {
    ("svc", "publish-not-ready-addresses", "true"): "",
    ("svc", "publish-not-ready-addresses", "false"): "the pods have names also before they are ready",
    ("svc", "disable-network-policy", "false"): "",
    ("svc", "disable-network-policy", "true"): "a Job's pods are reached by its own pods alone",
    ("svc", "inject-hosts-env", "true"): "",
    ("svc", "inject-hosts-env", "false"): "VC_<TASK>_HOSTS are set all the same",
    ("ssh", "ssh-private-key", "*"): "keys are made for each Job",
    ("ssh", "ssh-public-key", "*"): "keys are made for each Job",
    ("ssh", "ssh-port", "*"): f"is {names.SSH_PORT}",
    ("mpi", "port", "*"): f"is {names.SSH_PORT}",
    ("tensorflow", "port", "*"): _PORT,
    ("ray", "port", "*"): _PORT,
    ("ray", "dashboardPort", "*"): _PORT,
    ("ray", "clientPort", "*"): _PORT,
    ("pytorch", "wait-master-enabled", "*"): _WAIT,
    ("pytorch", "wait-master-timeout", "*"): _WAIT,
    ("pytorch", "wait-master-image", "*"): _WAIT,
}
"""What differs with an argument (plugin, name, value) that nobody asked for; empty: it is as a TrainingJob has it."""


class Plugin:
    """A plugin of a Job; its arguments by name."""

    def __init__(self, name: str, plugins: View) -> None:
        self.name = name
        self._view = plugins
        self._places: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._used: set[str] = set()
        for index, key, value in _arguments(plugins.texts(name)):
            self._places[key], self._values[key] = plugins.at(name, index), value

    @property
    def path(self) -> str:
        """Where it stands in the Job."""
        return self._view.at(self.name)

    def text(self, key: str) -> str | None:
        """The value of an argument, whose meaning the caller keeps; None where there is none."""
        self._used.add(key)
        return self._values.get(key) or None

    def port(self, key: str, default: int) -> int:
        """The value of an argument that is a port. Raises SpecError where it is none."""
        value = self.text(key)
        if value is None:
            return default
        if not (value.isdecimal() and 0 < int(value) < 1 << 16):
            refuse(self._places[key], f"{value} is no port", "a whole number from 1 to 65535")
        return int(value)

    def settle(self) -> None:
        """Account for the arguments: those that were asked for, and the others."""
        account = self._view.account
        target = _TARGETS.get(self.name, "")
        for key, path in self._places.items():
            value = self._values[key]
            known = next((why for why in map(_ARGUMENTS.get, _keys(self.name, key, value)) if why is not None), None)
            if key in self._used or known == "":
                account.kept(path, target)
            elif known is not None:
                account.changed(path, target, known)
            else:
                account.lost(path, f"{key} is not known to this converter", "see whether the job needs it")


def read_plugins(plugins: View) -> dict[str, Plugin]:
    """The plugins of a Job that have a counterpart, by name; the others are accounted for."""
    found = {}
    for name in plugins:
        if name in _TARGETS:
            found[name] = Plugin(name, plugins)
            if name != "ssh":  # what becomes of keys depends on the tasks
                plugins.account.kept(plugins.at(name), _TARGETS[name])
        else:
            why, remedy = _LOST.get(name, (_NOT_ELSEWHERE, "see whether the job needs it"))
            plugins.lost(name, why, remedy)
    return found


def _keys(plugin: str, key: str, value: str) -> tuple[tuple[str, str, str], ...]:
    return (plugin, key, value.lower()), (plugin, key, "*")


def _arguments(words: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Index, name and value of each argument: `--name=value`, `--name value`, or `--name` for true."""
    for index, word in enumerate(words):
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            if index == 0 or "=" in words[index - 1] or not words[index - 1].startswith("-"):
                yield index, word, ""
        elif equals:
            yield index, key, value
        else:
            following = words[index + 1 : index + 2]
            yield index, key, following[0] if following and not following[0].startswith("-") else "true"
