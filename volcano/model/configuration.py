# SPDX-License-Identifier: Apache-2.0
"""The scheduler's configuration: which actions run, and which plugins have a say, in tiers.

Source: UnmarshalSchedulerConf (pkg/scheduler/util.go), pkg/scheduler/conf, Volcano 1.15.1. What the model does not
know is refused rather than left out, as it would decide otherwise than the real scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CLASSIC", "GANG_AWARE", "Configuration", "Plugin", "parse_configuration"]

_ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt", "gangreclaim", "gangpreempt")
_PLUGINS = ("priority", "gang", "conformance", "drf", "predicates", "capacity", "nodeorder", "binpack")
_NEEDED = frozenset({"priority", "gang", "drf", "predicates", "capacity", "nodeorder", "binpack"})
_SWITCHES = ("enablePreemptable", "enableReclaimable")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin and what it is kept from."""

    name: str
    off: frozenset[str] = frozenset()
    """Switches that are false, such as `enablePreemptable`."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the scheduler does in a cycle."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[Plugin, ...], ...]

    def tiers_of(self, switch: str) -> Iterator[tuple[str, ...]]:
        """The names of the plugins for which a switch is on, tier by tier."""
        for tier in self.tiers:
            yield tuple(plugin.name for plugin in tier if switch not in plugin.off)


def parse_configuration(stated: Mapping[str, Any]) -> Configuration:
    """The configuration that `volcano-scheduler.conf` states, read as YAML.

    Raises SpecError for what the model does not follow: other actions and plugins, a plugin's arguments, plugins that
    are missing, and a `capacity` without its hierarchy.
    """
    problems = []
    actions = tuple(name.strip() for name in str(stated.get("actions", "")).split(","))
    problems += [
        Problem("actions", f"there is no model of {name!r}", f"known are {', '.join(_ACTIONS)}")
        for name in actions
        if name not in _ACTIONS
    ]
    tiers = []
    for number, tier in enumerate(stated.get("tiers") or ()):
        plugins = []
        for index, given in enumerate(tier["plugins"]):
            problems += _plugin_problems(f"tiers[{number}].plugins[{index}]", given)
            off = frozenset(switch for switch in _SWITCHES if given.get(switch) is False)
            plugins.append(Plugin(given["name"], off))
        tiers.append(tuple(plugins))
    missing = _NEEDED - {plugin.name for tier in tiers for plugin in tier}
    problems += [Problem("tiers", f"plugin {name!r} is missing, the model always has it") for name in sorted(missing)]
    if problems:
        raise SpecError(problems, source="scheduler configuration")
    return Configuration(actions, tuple(tiers))


def _plugin_problems(at: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    name = given["name"]
    if name not in _PLUGINS:
        yield Problem(at, f"there is no model of {name!r}", f"known are {', '.join(_PLUGINS)}")
    if name == "capacity" and not given.get("enableHierarchy"):
        yield Problem(at, "the model knows capacity with its hierarchy only", "set enableHierarchy: true")
    for field in given.keys() - {"name", "enableHierarchy", *_SWITCHES}:
        yield Problem(f"{at}.{field}", "the model does not follow this")


def _usual(*actions: str) -> Configuration:
    kept = frozenset({"enablePreemptable"})
    first = (Plugin("priority"), Plugin("gang", kept), Plugin("conformance"))
    second = (Plugin("drf", kept), *map(Plugin, ("predicates", "capacity", "nodeorder", "binpack")))
    return Configuration(actions, (first, second))


CLASSIC = _usual("enqueue", "allocate", "backfill", "reclaim", "preempt")
"""Pods are taken one by one."""
GANG_AWARE = _usual("enqueue", "allocate", "gangreclaim", "gangpreempt", "backfill")
"""Surplus is taken before gangs, and gangs whole."""
