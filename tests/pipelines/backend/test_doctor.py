# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

from apiserver.faults import Refuse
from kfp_volcano.pipelines.backend.doctor import examine_backend
from kfp_volcano.pipelines.client import Client
from kfp_volcano.volcano.launcher.doctor import Finding
from kfpapi.server import KfpApi
from kfpapi.state import Backend

Make = Callable[..., Client]


def findings(client: Client) -> dict[str, Finding]:
    """By their names."""
    return {each.what: each for each in examine_backend(client.connection)}


def test_a_backend_that_answers_is_well(client: Make, api: KfpApi):
    """With its address; what was not tried is not said to be well."""
    found = findings(client())
    assert found["kfp backend"].ok
    assert api.url in found["kfp backend"].found
    assert found["kfp namespace"].ok
    assert not found["kfp artifacts"].ok


def test_the_version_is_told_where_the_backend_says_it(client: Make, api: KfpApi):
    """Its health page has more than its API's description."""
    answers = iter([Refuse(200, body=b'{"tag_name": "2.4.1"}', headers={"Content-Type": "application/json"})])
    api.fault = lambda _: next(answers, None)
    found = findings(client())["kfp backend"]
    assert (found.ok, found.required) == (False, False)
    assert "2.4.1" in found.found


def test_a_backend_that_does_not_answer_or_lets_nobody_in_is_told(client: Make, api: KfpApi):
    """And nothing more is looked for."""
    for answer in (Refuse(503), Refuse(401), Refuse(302, headers={"Location": "https://login.example/"})):
        api.fault = lambda _, answer=answer: answer
        (found,) = findings(client()).values()
        assert (found.what, found.ok, found.required) == ("kfp backend", False, True)
    api.fault = lambda _: Refuse(404)
    (found,) = findings(client()).values()
    assert found.found == "is none"


def test_another_s_namespace_or_none_is_told(client: Make, backend: Backend):
    """Where the backend serves several users."""
    backend.multi_user = True
    assert findings(client(namespace="vision"))["kfp namespace"].ok
    assert "--namespace" in findings(client())["kfp namespace"].remedy
    assert "speech is not yours" in findings(client(namespace="speech"))["kfp namespace"].found
