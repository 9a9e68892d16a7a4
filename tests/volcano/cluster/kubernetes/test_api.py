# SPDX-License-Identifier: Apache-2.0
"""What is tried again, how long, and what is told of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from apiserver.faults import Cut, FaultyProxy, Refuse, Reset, Stall
from kfp_volcano.errors import UnavailableError
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.kubernetes.api import Api, Patience
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.cluster.kubernetes.request import Request

READ = Request("get", KINDS["ConfigMap"], "ns", "a")
FINE = Refuse(200, body={"kind": "ConfigMap"})


@pytest.fixture(name="api")
def _api(ill: FaultyProxy, tmp_path: Path, virtual) -> Api:
    return Api(from_kubeconfig(ill.kubeconfig(tmp_path)), virtual.patience())


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(ill: FaultyProxy, api: Api, virtual, status: int) -> None:
    """Pauses grow from one try to the next, and the answer that stands is returned."""
    ill.plan(*[Refuse(status)] * 4, FINE)
    assert api.read(READ) == {"kind": "ConfigMap"}
    assert virtual.pauses == [0.25, 0.5, 1.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_what_stands_is_not_tried_again(ill: FaultyProxy, api: Api, virtual, status: int) -> None:
    """A refusal is an answer; only credentials are read again once, in case they were renewed."""
    ill.plan(*[Refuse(status)] * 3)
    assert api.ask(READ).answer.status == status
    assert len(ill.seen) == (2 if status == 401 else 1)
    assert virtual.pauses == []


@pytest.mark.parametrize("fault", [Reset(), Refuse(200, body=b"half", headers={"Content-Encoding": "gzip"})])
def test_half_an_answer_is_none(ill: FaultyProxy, api: Api, virtual, fault) -> None:
    """A connection that breaks, or a body that cannot be read, is asked for again."""
    ill.plan(fault, FINE)
    assert api.read(READ) == {"kind": "ConfigMap"}
    assert len(virtual.pauses) == 1


@pytest.mark.parametrize("asked", ["7", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_the_server_says_when_to_come_back(ill: FaultyProxy, api: Api, virtual, asked: str) -> None:
    """`Retry-After` is waited for, in seconds or as a date, and then some, so that not all come at once."""
    ill.plan(Refuse(429, headers={"Retry-After": asked}), FINE)
    api.read(READ)
    assert virtual.pauses == [7.25 if asked == "7" else 0.25]


def test_a_wait_that_is_too_long_is_not_begun(ill: FaultyProxy, api: Api, virtual) -> None:
    """A server that asks for an hour is given up at once, and its wish is told."""
    ill.plan(Refuse(503, "closed", headers={"Retry-After": "3600"}))
    with pytest.raises(UnavailableError, match=r"get ConfigMap ns/a: 503 closed \(tried 1 times; .*3600 s"):
        api.read(READ)
    assert virtual.pauses == []


def test_patience_ends(ill: FaultyProxy, api: Api, virtual) -> None:
    """What never answers is given up when the time is used up, with what it said last."""
    ill.plan(*[Refuse(503, "not today")] * 50)
    with pytest.raises(UnavailableError, match=r"503 not today \(tried 8 times\)"):
        api.read(READ)
    assert virtual.now <= 30.0
    assert max(virtual.pauses) == 8.0


def test_each_try_is_told(ill: FaultyProxy, api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """What is tried again is logged with the reason and the pause, as a warning from a second on."""
    ill.plan(Refuse(503, "starting"), Refuse(429, headers={"Retry-After": "2"}), FINE)
    with caplog.at_level(logging.DEBUG, logger=Api.__module__):
        api.read(READ)
    assert [(each.levelname, each.message) for each in caplog.records if each.name == Api.__module__] == [
        ("DEBUG", "get ConfigMap ns/a: 503 starting; trying again in 0.2 s"),
        ("WARNING", "get ConfigMap ns/a: 429 injected; trying again in 2.5 s"),
    ]


def test_nobody_there_is_told_so(tmp_path: Path, ill: FaultyProxy, virtual) -> None:
    """An address at which nothing listens is unavailable, and the request cannot have been carried out."""
    gone = FaultyProxy()
    file = gone.kubeconfig(tmp_path)
    gone._listener.server_close()
    with pytest.raises(UnavailableError, match="cannot be reached"):
        Api(from_kubeconfig(file), virtual.patience(total_s=1.0)).read(READ)


def test_an_answer_that_is_not_the_servers_is_refused(ill: FaultyProxy, api: Api) -> None:
    """A page of HTML with status 200, as captive proxies send it, is not taken for an object."""
    ill.plan(Refuse(200, body=b"<html>please log in</html>"))
    with pytest.raises(UnavailableError, match="proxy"):
        api.read(READ)


def test_doubt_is_told(ill: FaultyProxy, api: Api) -> None:
    """An earlier try may have been carried out unless it was turned away, or never left."""
    for faults, doubtful in (([], False), ([Refuse(429)], False), ([Reset()], True), ([Refuse(500)], True)):
        ill.plan(*faults, FINE)
        assert api.ask(READ).doubtful is doubtful


def test_pauses_are_spread() -> None:
    """Between half a pause and a whole one, by chance."""
    chances = iter((0.0, 0.5))
    patience = Patience(jitter=lambda: next(chances))
    assert [patience.pause_s(3), patience.pause_s(3)] == [0.5, 0.75]


@pytest.mark.cluster
@pytest.mark.parametrize("fault", [Cut(20), Stall(20), Stall(0), Reset()])
def test_a_broken_answer_is_asked_for_again(proxy: FaultyProxy, through, namespace: str, fault) -> None:
    """Cut off, silent or reset: the object is read whole in the end."""
    proxy.plan(fault, fault)
    assert through.get("ServiceAccount", "default", namespace)["metadata"]["name"] == "default"
    assert len(proxy.seen) == 3
