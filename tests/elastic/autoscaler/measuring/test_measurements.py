# SPDX-License-Identifier: Apache-2.0
"""Measurements from real servers: a Prometheus' API and a DCGM exporter's page, also where these are ill."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import promql_parser
import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kfp_volcano.elastic.autoscaler.measuring.dcgm import DcgmExporters
from kfp_volcano.elastic.autoscaler.measuring.measurements import CPU, GPU_UTIL, MEMORY, STALE_S, Measurements, Source
from kfp_volcano.elastic.autoscaler.measuring.prometheus import POD_QUERIES, Prometheus, pod_query

NOW = 1_790_000_000.0


class Served(ThreadingHTTPServer):
    """An HTTP server that answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str]] = {}
        """Status and body by query or path."""
        self.asked: list[tuple[str, str]] = []
        """Queries or paths, and the Authorization they came with."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def vector(self, query: str, *samples: tuple[dict[str, str], object]) -> None:
        result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in samples]
        self.answers[query] = (
            200,
            json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}),
        )


class _Handler(BaseHTTPRequestHandler):
    server: Served

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert self.path.endswith("/api/v1/query")
        self._answer(form["query"][0])

    def do_GET(self) -> None:
        self._answer(self.path)

    def _answer(self, key: str) -> None:
        self.server.asked.append((key, self.headers.get("Authorization", "")))
        empty = '{"status":"success","data":{"resultType":"vector","result":[]}}'
        status, body = self.server.answers.get(key, (200, empty))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(name="served")
def _served() -> Iterator[Served]:
    server = Served()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def measuring(*sources: Source, clock: Clock | None = None) -> Measurements:
    """Measurements in which each queue has one query, of its own name."""
    return Measurements(sources, queries=lambda queue: {queue: queue}, clock=clock or Clock())


@pytest.mark.parametrize("metric", POD_QUERIES)
def test_pod_queries_are_promql_with_the_pod_and_nothing_else(metric: str) -> None:
    """Whatever the namespaces are called, the query parses, and its samples are told apart by pod alone."""
    parsed = promql_parser.parse(pod_query(metric, ["ml", "team.a"]))
    assert isinstance(parsed, promql_parser.AggregateExpr)
    assert sorted(parsed.modifier.labels) == ["namespace", "pod"]
    assert "ml|team" in pod_query(metric, ["team.a", "ml"])


def test_all_pods_are_read_by_one_query_a_metric(served: Served) -> None:
    """What was asked for once is read, together, and is there the next time."""
    asked = measuring(Prometheus(f"{served.url}/prom/"))
    pods = (("ml", "a-0"), ("ml", "a-1"), ("vision", "b-0"))
    assert [asked.of_pod(*pod) for pod in pods] == [{}, {}, {}]
    labels = [{"namespace": "ml", "pod": "a-0"}, {"namespace": "ml", "pod": "a-1"}]
    served.vector(pod_query(GPU_UTIL, ["ml", "vision"]), (labels[0], 30), (labels[1], 90))
    served.vector(pod_query(CPU, ["ml", "vision"]), (labels[0], 1.5))
    asked.read()
    assert len(served.asked) == len(POD_QUERIES)
    assert {name: each.value for name, each in asked.of_pod("ml", "a-0").items()} == {GPU_UTIL: 30, CPU: 1.5}
    assert asked.of_pod("vision", "b-0") == {}
    assert asked.utilisation("ml", ["a-0", "a-1", "gone"]) == pytest.approx(0.6)
    assert asked.utilisation("vision", ["b-0"]) is None


def test_a_named_query_is_the_sum_of_what_it_finds(served: Served) -> None:
    """As of an HPA's external metric; nothing found, and what is no number, is missing and not zero."""
    names = {"depth": "sum(depth)", "absent": "absent", "broken": "broken", "five": "5"}
    asked = Measurements([Prometheus(served.url)], queries={"research": names, "other": {}}.__getitem__, clock=Clock())
    assert [asked.of_queue("research"), asked.of_queue("other")] == [{}, {}]
    served.vector("sum(depth)", ({"q": "a"}, 3), ({"q": "b"}, 4))
    served.vector("broken", ({}, "NaN"))
    scalar = {"resultType": "scalar", "result": [NOW, "5"]}
    served.answers["5"] = (200, json.dumps({"status": "success", "data": scalar}))
    asked.read()
    assert asked.of_queue("research") == {"depth": 7, "five": 5}


def test_what_grows_old_is_missing(served: Served) -> None:
    """A Prometheus that went away leaves its last values for a minute, then none; back again they are."""
    clock = Clock()
    asked = measuring(Prometheus(served.url), clock=clock)
    assert (asked.of_pod("ml", "a-0"), asked.of_queue("depth")) == ({}, {})
    served.vector(pod_query(MEMORY, ["ml"]), ({"namespace": "ml", "pod": "a-0"}, 5))
    served.vector("depth", ({}, 3))
    asked.read()
    working, served.answers = served.answers, dict.fromkeys((pod_query(MEMORY, ["ml"]), "depth"), (503, "away"))
    clock.now += STALE_S - 1
    asked.read()
    assert (asked.of_pod("ml", "a-0")[MEMORY].value, asked.of_queue("depth")) == (5, {"depth": 3})
    clock.now += 1
    assert (asked.of_pod("ml", "a-0"), asked.of_queue("depth")) == ({}, {})
    served.answers = working
    asked.read()
    assert asked.of_queue("depth") == {"depth": 3}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "<html>log in</html>"),
        (200, '{"data": {"resultType": "matrix", "result": []}}'),
        (200, '{"data": {"resultType": "vector", "result": [{"metric": {}, "value": []}]}}'),
        (200, "[]"),
        (302, ""),
        (401, "who are you"),
        (400, '{"status": "error", "error": "parse error"}'),
        (422, "not json"),
    ],
)
def test_answers_that_are_none_are_missing_values(
    served: Served, status: int, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is answered, nothing is raised, and it is told once."""
    asked = measuring(Prometheus(served.url))
    asked.of_queue("depth")
    served.answers["depth"] = (status, body)
    asked.read()
    asked.read()
    assert asked.of_queue("depth") == {}
    assert len(caplog.records) == 1
    assert "measurements are missing" in caplog.text


def test_one_bad_query_keeps_no_other_from_its_value(served: Served) -> None:
    """What Prometheus refuses is that query's own fault."""
    asked = measuring(Prometheus(served.url))
    for name in ("bad((", "depth"):
        asked.of_queue(name)
    served.answers["bad(("] = (400, '{"status": "error", "error": "parse error"}')
    served.vector("depth", ({}, 3))
    asked.read()
    assert asked.of_queue("depth") == {"depth": 3}


def test_a_token_is_read_each_time(served: Served, tmp_path: Path) -> None:
    """It may be renewed in its file; without the file nothing is asked."""
    token = tmp_path / "token"
    token.write_text("one\n")
    asked = measuring(Prometheus(served.url, token_file=token))
    asked.of_queue("depth")
    asked.read()
    token.write_text("two\n")
    asked.read()
    token.unlink()
    asked.read()
    assert [authorization for _, authorization in served.asked] == ["Bearer one", "Bearer two"]


def exporter(*gpus: tuple[str, str, float]) -> str:
    """What a DCGM exporter serves."""
    registry = CollectorRegistry()
    labels = ["gpu", "UUID", "device", "modelName", "Hostname", "container", "namespace", "pod"]
    util = Gauge(GPU_UTIL, "GPU utilization (in %).", labels, registry=registry)
    Gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", labels, registry=registry)
    for index, (namespace, pod, value) in enumerate(gpus):
        util.labels(index, f"GPU-{index}", f"nvidia{index}", "A100", "node", "main", namespace, pod).set(value)
    return generate_latest(registry).decode()


def test_exporters_are_read_without_a_prometheus(served: Served) -> None:
    """The mean of a pod's GPUs; GPUs of nobody, and of other namespaces, are left out."""
    asked = measuring(DcgmExporters(f"{served.url}/metrics"))
    asked.of_pod("ml", "a-0")
    page = exporter(("ml", "a-0", 20), ("ml", "a-0", 40), ("", "", 99), ("vision", "b-0", 7))
    served.answers["/metrics"] = (200, page)
    asked.read()
    assert asked.of_pod("ml", "a-0")[GPU_UTIL].value == 30
    assert asked.of_pod("vision", "b-0") == {}


@pytest.mark.parametrize("answer", [(500, "ill"), (200, "what { is this"), (200, "")])
def test_an_exporter_that_is_ill_measures_nothing(served: Served, answer: tuple[int, str]) -> None:
    """Missing, and no error."""
    asked = measuring(DcgmExporters(f"{served.url}/metrics"))
    asked.of_pod("ml", "a-0")
    served.answers["/metrics"] = answer
    asked.read()
    assert asked.of_pod("ml", "a-0") == {}


def test_servers_that_are_not_there_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a refused connection nor an unknown name raises."""
    exporters = [DcgmExporters(url) for url in ("http://127.0.0.1:9", "nowhere.invalid", "http://127.0.0.1:port")]
    sources = [Prometheus("http://127.0.0.1:9"), *exporters]
    asked = measuring(*sources)
    asked.of_pod("ml", "a-0")
    asked.of_queue("depth")
    asked.read()
    assert "does not answer" in caplog.text
    assert "no DCGM exporter is known as nowhere.invalid" in caplog.text
