# SPDX-License-Identifier: Apache-2.0
"""Measurements from DCGM exporters themselves, where there is no Prometheus: what they serve in its text format."""

from __future__ import annotations

import math
import socket
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from kfp_volcano.elastic.autoscaler.measuring.measurements import GPU_UTIL, Reading
from kfp_volcano.elastic.policies.snapshot import Sample
from kfp_volcano.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DcgmExporters"]

TIMEOUT_S = 5.0
"""For one exporter, seconds."""
_PARALLEL = 16
_WINDOW_S = 30.0
"""The exporter's own period of collection by default (`--collect-interval`), seconds."""
_OK = 200


class DcgmExporters:
    """A `Source`: every exporter that a name stands for, as a headless Service's does for the pods of a DaemonSet.

    Args:
        url: Such as `http://nvidia-dcgm-exporter.gpu-operator:9400/metrics`.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url if "://" in url else f"http://{url}")
        self._pool = urllib3.PoolManager(
            num_pools=_PARALLEL, timeout=urllib3.Timeout(connect=TIMEOUT_S, read=TIMEOUT_S), retries=False
        )

    def read(self, namespaces: Collection[str], queries: Collection[str], now: float) -> Reading:
        """See `Source.read`: utilisation of GPUs alone; queries are not an exporter's to answer."""
        del queries
        addresses = self._addresses()
        with ThreadPoolExecutor(min(_PARALLEL, len(addresses))) as pool:
            pages = list(pool.map(self._scrape, addresses))
        gpus: defaultdict[str, list[float]] = defaultdict(list)
        for page in pages:
            for pod, value in _utilisations(page) if isinstance(page, str) else ():
                if pod.partition("/")[0] in namespaces:
                    gpus[pod].append(value)
        pods = {pod: {GPU_UTIL: Sample(now, fmean(values), _WINDOW_S)} for pod, values in gpus.items()}
        return Reading(pods=pods, troubles=tuple(str(page) for page in pages if not isinstance(page, str)))

    def _addresses(self) -> list[str]:
        try:
            found = socket.getaddrinfo(self._url.hostname, self._url.port or 80, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # a port that is no number, too
            raise UnavailableError(f"no DCGM exporter is known as {self._url.netloc}: {error}") from error
        return sorted({str(address[0]) for *_, address in found})

    def _scrape(self, address: str) -> str | UnavailableError:
        host = f"[{address}]" if ":" in address else address
        url = urlunsplit(self._url._replace(netloc=f"{host}:{self._url.port or 80}"))
        try:
            response = self._pool.request("GET", url, headers={"Host": self._url.netloc})
        except urllib3.exceptions.HTTPError as error:
            return UnavailableError(f"the DCGM exporter at {url} does not answer: {error}")
        if response.status != _OK:
            return UnavailableError(f"the DCGM exporter at {url} answers {response.status}")
        return response.data.decode(errors="replace")


def _utilisations(page: str) -> list[tuple[str, float]]:
    """Of each GPU that a pod has: the pod, and the percentage. Nothing where the page is not what it should be."""
    try:
        return [
            (f"{sample.labels['namespace']}/{sample.labels['pod']}", sample.value)
            for family in text_string_to_metric_families(page)
            if family.name == GPU_UTIL
            for sample in family.samples
            if sample.labels.get("pod") and sample.labels.get("namespace") and math.isfinite(sample.value)
        ]
    except ValueError:
        return []
