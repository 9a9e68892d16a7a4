# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alerts ask for metrics that there are, and the documentation knows each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from kfp_volcano.elastic.autoscaler.supervisor import Supervisor
from kfp_volcano.elastic.autoscaler.telling.exposition import ACTOR
from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX, Telemetry

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
PAGE = ROOT / "docs" / "autoscaler.md"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
TARGET = {"pod", "namespace", "job", "instance"}
"""Labels that Prometheus itself gives every series of a pod."""
OTHERS = {"volcano_queue_allocated_scalar_resources": {"queue_name", "resource"}}
"""Of Volcano's scheduler: pkg/scheduler/metrics/queue.go."""


def families() -> dict[str, set[str]]:
    """The labels of each metric of the code, by its name without suffix; and what it is."""
    own = {metric._name: {*metric._labelnames, ACTOR} for metric in Telemetry(CollectorRegistry()).metrics}
    about = Supervisor(None, queues=list, actors=1).about()
    return own | {family.name: {"version"} if family.name.endswith("_info") else {ACTOR} for family in about}


def kinds() -> dict[str, str]:
    """The type of each."""
    own = {metric._name: metric._type for metric in Telemetry(CollectorRegistry()).metrics}
    return own | {family.name: family.type for family in Supervisor(None, queues=list, actors=1).about()}


def series() -> dict[str, set[str]]:
    """The labels of every series that is served."""
    types, found = kinds(), dict(OTHERS)
    for name, labels in families().items():
        for suffix in SUFFIXES[types[name]]:
            found[name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["spec"]["groups"]
    return group["rules"]


def panels() -> list[dict[str, Any]]:
    board = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries() -> Iterator[object]:
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m")
            yield pytest.param(expression, id=f"{panel['title']}-{target['refId']}")


def selectors(expression: Any) -> Iterator[Any]:
    """The vector selectors in an expression, and the labels that it groups or joins by."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "args", "param"):
        below = getattr(expression, name, None)
        for each in below if isinstance(below, list) else [below]:
            if isinstance(each, promql_parser.Expr):
                yield from selectors(each)


def labels_used(query: str) -> set[str]:
    """Labels that a query groups, joins or renames by."""
    lists = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", query)
    return {label.strip() for each in lists for label in each.split(",")}


@pytest.mark.parametrize("query", list(queries()))
def test_every_query_asks_for_what_is_there(query: str) -> None:
    """It parses; its metrics, their labels in matchers, and the labels it groups by exist."""
    known = series()
    found = list(selectors(promql_parser.parse(query)))
    assert len(found) == len(re.findall(r"\b(?:kfp_)?volcano_\w+", query))
    of_metrics: set[str] = set()
    for selector in found:
        assert selector.name in known
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert matched <= known[selector.name] | TARGET
        of_metrics |= known[selector.name]
    assert labels_used(query) <= of_metrics | TARGET
    if "histogram_quantile" in query:
        assert all(selector.name.endswith("_bucket") for selector in found)


def test_every_metric_is_documented() -> None:
    """The page's table has each metric of the code, with its type and labels, and no other."""
    rows = re.findall(rf"^\| `({PREFIX}_\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    types = kinds()
    wanted = {
        (
            name + ("_total" if types[name] == "counter" else ""),
            types[name],
            ", ".join(sorted(f"`{it}`" for it in labels)),
        )
        for name, labels in families().items()
    }
    assert set(rows) == wanted


def test_every_alert_is_documented() -> None:
    """With what to do, under its own name; and it says how grave it is, and what has happened."""
    headings = re.findall(r"^### (KfpVolcano\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= labels_used(rule["expr"]) or "by" not in rule["expr"]


def test_panels_do_not_overlap() -> None:
    """Each has a place of its own in the grid, and an id."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
