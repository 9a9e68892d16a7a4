# SPDX-License-Identifier: Apache-2.0
"""Measurements from a Prometheus: GPUs by the DCGM exporter, CPU, memory and network by cAdvisor, and named queries.

One instant query for each metric of all pods of the namespaces that are asked for, however many pods these are.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import urllib3

from kfp_volcano.elastic.autoscaler.measuring.measurements import (
    CPU,
    GPU_UTIL,
    MEMORY,
    NETWORK_RECEIVE,
    NETWORK_TRANSMIT,
    Reading,
)
from kfp_volcano.elastic.policies.snapshot import Sample
from kfp_volcano.errors import SpecError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

__all__ = ["POD_QUERIES", "PodQuery", "Prometheus", "pod_query"]

_Found: TypeAlias = "tuple[Mapping[str, str], float, float]"
"""Labels, Unix seconds and value of a sample."""

TIMEOUT_S = 5.0
"""For one query, seconds."""
_OK = 200
_REFUSED = (400, 422)
"""What is wrong with a query, and what is wrong with carrying it out."""
_SAID = 200
"""Characters of an answer that are told on."""


@dataclass(frozen=True, slots=True)
class PodQuery:
    """How a metric of pods is asked for; `NAMESPACES` stands for a matcher's regular expression."""

    promql: str
    window_s: float


def _exporter(series: str) -> str:
    """A series of the DCGM exporter by pod.

    Where Prometheus scrapes it without `honorLabels`, the pod whose GPU it is stands in `exported_pod`, and `pod` is
    the exporter's own.
    """
    renamed = f'{series}{{exported_namespace=~"NAMESPACES",exported_pod!=""}}[1m]'
    for label in ("namespace", "pod"):
        inner = f"avg_over_time({renamed})" if label == "namespace" else renamed
        renamed = f'label_replace({inner}, "{label}", "$1", "exported_{label}", "(.+)")'
    own = f'avg_over_time({series}{{namespace=~"NAMESPACES",exported_pod="",pod!=""}}[1m])'
    return f"avg by (namespace, pod) ({renamed} or {own})"


def _rate(series: str, matchers: str) -> str:
    return f'sum by (namespace, pod) (rate({series}{{namespace=~"NAMESPACES",{matchers}}}[2m]))'


POD_QUERIES = {
    GPU_UTIL: PodQuery(_exporter(GPU_UTIL), 60.0),
    CPU: PodQuery(_rate("container_cpu_usage_seconds_total", 'container!="",pod!=""'), 120.0),
    MEMORY: PodQuery(
        "sum by (namespace, pod) (last_over_time("
        'container_memory_working_set_bytes{namespace=~"NAMESPACES",container!="",pod!=""}[2m]))',
        0.0,
    ),
    NETWORK_RECEIVE: PodQuery(_rate("container_network_receive_bytes_total", 'pod!=""'), 120.0),
    NETWORK_TRANSMIT: PodQuery(_rate("container_network_transmit_bytes_total", 'pod!=""'), 120.0),
}
"""By metric. Windows hold two scrapes of 30 s at least."""


def pod_query(metric: str, namespaces: Collection[str]) -> str:
    """The PromQL for a metric of all pods of some namespaces."""
    names = "|".join(re.escape(each).replace("\\", "\\\\") for each in sorted(namespaces))
    return POD_QUERIES[metric].promql.replace("NAMESPACES", names)


class Prometheus:
    """A `Source`: the HTTP API of a Prometheus, or of what speaks like it (Thanos, Mimir, VictoriaMetrics).

    Args:
        url: Its address, with the path before `/api/v1` where it has one.
        token_file: A file with a bearer token, read for each reading: tokens are renewed in their file.
        ca_file: The certificate authority of its certificate; by default the system's.
    """

    def __init__(self, url: str, *, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._pool = urllib3.PoolManager(
            num_pools=1,
            timeout=urllib3.Timeout(connect=TIMEOUT_S, read=TIMEOUT_S),
            retries=False,
            ca_certs=ca_file and str(ca_file),
        )

    def read(self, namespaces: Collection[str], queries: Collection[str], now: float) -> Reading:
        """See `Source.read`."""
        pods: dict[str, dict[str, Sample]] = {}
        values: dict[str, float] = {}
        refused: list[str] = []
        ask = self._asking(self._headers(), refused)
        for metric, query in POD_QUERIES.items() if namespaces else ():
            for labels, at, value in ask(pod_query(metric, namespaces)):
                if "namespace" in labels and "pod" in labels:
                    pod = f"{labels['namespace']}/{labels['pod']}"
                    pods.setdefault(pod, {})[metric] = Sample(min(at, now), value, query.window_s)
        for text in queries:
            found = [value for _, _, value in ask(text)]
            values |= {text: sum(found)} if found else {}
        return Reading(pods, values, tuple(refused))

    def _asking(self, headers: Mapping[str, str], refused: list[str]) -> Callable[[str], list[_Found]]:
        """`_ask`, which finds nothing where a query is refused, and notes it."""

        def ask(query: str) -> list[_Found]:
            try:
                return self._ask(query, headers)
            except SpecError as error:
                refused.append(str(error))
                return []

        return ask

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UnavailableError(f"the token for {self._url} cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}

    def _ask(self, query: str, headers: Mapping[str, str]) -> list[_Found]:
        """The labels, time and value of each sample that an instant query finds.

        Raises SpecError where Prometheus refuses the query, UnavailableError where there is no answer to any.
        """
        url = f"{self._url}/api/v1/query"
        try:
            response = self._pool.request("POST", url, fields={"query": query}, encode_multipart=False, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"{self._url} does not answer: {error}") from error
        try:
            answer = json.loads(response.data)
            if response.status in _REFUSED and answer.get("error"):
                raise SpecError(f"Prometheus refuses it: {answer['error']}", source=query)
            if response.status == _OK:
                return list(_samples(answer["data"]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise UnavailableError(f"{url} is not the API of a Prometheus: {error!r}") from error
        said = response.data[:_SAID].decode(errors="replace").strip()
        raise UnavailableError(f"{self._url} answers {response.status}: {said}")


def _samples(data: Mapping[str, Any]) -> Iterator[_Found]:
    """The samples of a vector or a scalar; what is no number is none."""
    if data["resultType"] not in {"vector", "scalar"}:
        raise ValueError(f"an instant value was asked for, and a {data['resultType']} came")
    found = data["result"] if data["resultType"] == "vector" else [{"metric": {}, "value": data["result"]}]
    for each in found:
        at, value = each["value"]
        if math.isfinite(float(value)):
            yield each["metric"], float(at), float(value)
