# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from kfp_server_api import rest

from apiserver.faults import Refuse, Reset, Seen
from kfp_volcano.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SpecError,
    UnavailableError,
)
from kfp_volcano.pipelines.backend import connection
from kfp_volcano.pipelines.backend.transport import UnsentError
from kfp_volcano.pipelines.client import Client
from kfp_volcano.pipelines.ir import CompiledPipeline, compiled
from kfpapi.server import KfpApi
from kfpapi.state import Backend

Make = Callable[..., Client]


def test_a_run_is_made_of_an_uploaded_version(client: Make, backend: Backend, file: Path):
    """The run names the version, its parameters have the declared types, and caching is left to the pipeline."""
    run = client().submit(file, {"epochs": "7", "sizes": "[1, 2]", "wet": "true"}, experiment="nightly", run_name="a+b")
    (row,) = backend.rows["runs"].values()
    (version,) = backend.rows["pipeline_versions"].values()
    (experiment,) = backend.rows["experiments"].values()
    assert row["run_id"] == run.run_id
    assert row["pipeline_version_reference"]["pipeline_version_id"] == version["pipeline_version_id"]
    assert row["runtime_config"]["parameters"] == {"epochs": 7, "sizes": [1, 2], "wet": True}
    assert (row["display_name"], experiment["display_name"]) == ("a+b", "nightly")
    assert "pipeline_spec" not in row
    assert run.url.endswith(f"/#/runs/details/{run.run_id}")


def test_the_same_content_is_the_same_version(client: Make, backend: Backend, file: Path, small: CompiledPipeline):
    """However often and in whatever layout it is uploaded; other content is another version."""
    first = client().upload(file)
    again = client().upload(small)
    rearranged = CompiledPipeline.parse(f"# a comment\n{json.dumps(json.loads(json.dumps(_spec(small))))}")
    third = client().upload(rearranged)
    assert (first.created, again.created, third.created) == (True, False, False)
    assert first.version_id == again.version_id == third.version_id
    other = CompiledPipeline.parse(json.dumps({**_spec(small), "defaultPipelineRoot": "s3://elsewhere"}))
    assert client().upload(other).created
    assert len(backend.rows["pipelines"]) == 1
    assert len(backend.rows["pipeline_versions"]) == 2


def _spec(pipeline: CompiledPipeline) -> dict[str, object]:
    return next(iter(yaml.safe_load_all(pipeline.text)))


def test_every_wrong_parameter_is_said_before_anything_is_sent(client: Make, api: KfpApi, file: Path):
    """Unknown, missing and of the wrong type, in one error; the backend hears nothing."""
    with pytest.raises(SpecError) as refused:
        client().submit(file, {"epoch": "7", "share": "much", "wet": "perhaps", "sizes": "{}", "name": 3})
    assert len(refused.value.problems) == 6
    assert api.seen == []


def test_what_is_no_pipeline_is_refused(client: Make, tmp_path: Path):
    """A YAML file of something else, one that is not there, a Python file without a pipeline, any object."""
    (tmp_path / "job.yaml").write_text("kind: Job\n")
    (tmp_path / "broken.yaml").write_text("{")
    (tmp_path / "empty.py").write_text("")
    for wrong in (*(tmp_path / name for name in ("job.yaml", "broken.yaml", "none.yaml", "empty.py")), 3, print):
        with pytest.raises(SpecError):
            client().submit(wrong)


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("number", range(8))
def test_an_answer_that_is_lost_makes_nothing_twice(
    client: Make, api: KfpApi, backend: Backend, small: CompiledPipeline, number: int, *, carried_out: bool
):
    """Whichever request's connection is reset, before or after it was carried out: one pipeline, version and run."""
    lost = iter([None] * number + [Reset(carried_out=carried_out)])
    api.fault = lambda _: next(lost, None)
    run = client().submit(small, {"epochs": 1})
    assert list(backend.rows["runs"]) == [run.run_id]
    assert [len(rows) for rows in backend.rows.values()][:4] == [1, 1, 1, 1]


def test_a_backend_that_is_busy_is_asked_again_as_late_as_it_says(
    client: Make, api: KfpApi, backend: Backend, small: CompiledPipeline
):
    """503 with Retry-After: the client waits so long, and not less."""
    busy = iter([Refuse(503, headers={"Retry-After": "17"})])
    api.fault = lambda _: next(busy, None)
    began = backend.now
    client().submit(small, {"epochs": 1})
    assert 17 <= (backend.now - began).total_seconds() < 30


def test_a_backend_that_stays_silent_is_given_up(client: Make, api: KfpApi, backend: Backend, small: CompiledPipeline):
    """After a minute of trying, with the host in the message."""
    api.fault = lambda _: Refuse(503)
    began = backend.now
    with pytest.raises(UnavailableError, match=api.url):
        client().submit(small, {"epochs": 1})
    assert 45 < (backend.now - began).total_seconds() < 75
    assert UnavailableError.exit_code == 3


def test_signs_that_a_database_may_not_know_are_pointed_at(client: Make, api: KfpApi, small: CompiledPipeline):
    """The backend says no more than 500 where its database refuses the pipeline's text."""
    strange = CompiledPipeline.parse(small.text.replace("name: small", "description: a → b\n  name: small"))
    api.fault = lambda seen: Refuse(500) if "upload_version" in seen.path else None
    with pytest.raises(UnavailableError, match="'→'"):
        client().submit(strange, {"epochs": 1})


def test_nobody_there_is_said_with_the_host(backend: Backend, client: Make, api: KfpApi, small: CompiledPipeline):
    """A port on which nothing listens."""
    api.stop()
    began = backend.now
    with pytest.raises(UnavailableError, match=f"{api.url} cannot be reached: .*refused"):
        client().submit(small, {"epochs": 1})
    assert (backend.now - began).total_seconds() <= 10
    api.start()


@pytest.mark.parametrize(
    ("answer", "error", "word"),
    [
        (Refuse(401, "no user identity"), ForbiddenError, "--token-file"),
        (Refuse(403, "User 'ada' is not authorized"), ForbiddenError, "not authorized"),
        (Refuse(404, body=b"<html>nginx</html>"), NotFoundError, "is --host right"),
        (Refuse(302, headers={"Location": "https://login.example/"}), ForbiddenError, "https://login.example/"),
        (Refuse(200, body=b"<html>login</html>", headers={"Content-Type": "text/html"}), ForbiddenError, "web page"),
        (Refuse(400, "Failed: InvalidInputError: no such thing"), InvalidError, "no such thing"),
        (Refuse(409, "exists"), ConflictError, "exists"),
    ],
)
def test_a_refusal_is_said_in_words(client: Make, api: KfpApi, small: CompiledPipeline, answer, error, word):
    """Credentials, permissions, a wrong host, a login page: each as the error it is, with what to do."""
    api.fault = lambda _: answer
    with pytest.raises(error, match=word):
        client().submit(small, {"epochs": 1})


def test_several_users_are_kept_apart(client: Make, backend: Backend, small: CompiledPipeline):
    """With a namespace all is made there; without one it is asked for; another's is refused with its name."""
    backend.multi_user = True
    client(namespace="vision").submit(small, {"epochs": 1})
    assert {row["namespace"] for name in ("experiments", "pipelines") for row in backend.rows[name].values()} == {
        "vision"
    }
    with pytest.raises(SpecError, match="--namespace"):
        client().submit(small, {"epochs": 1})
    with pytest.raises(ForbiddenError, match="namespace speech"):
        client(namespace="speech").submit(small, {"epochs": 1})


def test_making_a_client_asks_and_writes_nothing(client: Make, api: KfpApi, home: Path):
    """kfp's own constructor may do both."""
    made = client()
    assert api.seen == []
    assert not home.exists()
    assert type(made.kfp).__mro__[1].__module__ == "kfp.client.client"


def test_a_token_file_is_read_anew_for_each_request(client: Make, api: KfpApi, small: CompiledPipeline, tmp_path: Path):
    """A token that changes while the client lives does no harm; one that is wrong is said."""
    file = tmp_path / "token"
    file.write_text("first\n")
    api.token = "first"
    made = client(token_file=file)
    made.submit(small, {"epochs": 1})
    file.write_text("second\n")
    api.token = "second"
    made.submit(small, {"epochs": 1})
    file.write_text("third\n")
    with pytest.raises(ForbiddenError, match="credentials"):
        made.submit(small, {"epochs": 1})
    file.unlink()
    with pytest.raises(SpecError, match="token"):
        made.submit(small, {"epochs": 1})


def test_what_is_wrong_with_the_access_is_said_at_once(client: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Files that are not there, a host that is no URL, none at all."""
    with pytest.raises(SpecError) as refused:
        client(token_file=tmp_path / "no", ca_cert=tmp_path / "nor-this")
    assert len(refused.value.problems) == 2
    for host in ("ftp://kfp.example.org", "http://", "http://[::1", "http://kfp:port"):
        with pytest.raises(SpecError, match="no URL"):
            Client(host)
    with pytest.raises(SpecError, match="no KFP backend is named"):
        Client()


def test_a_token_file_that_is_no_text_is_told(client: Make, small: CompiledPipeline, tmp_path: Path):
    """In words, not in a traceback of kfp's."""
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not text"):
        client(token_file=file).submit(small, {"epochs": 1})


@pytest.mark.parametrize(
    ("reason", "kind", "said"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get issuer", ClusterError, "--ca-cert"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", UnsentError, "http://"),
    ],
)
def test_what_is_wrong_with_tls_is_told(
    client: Make, small: CompiledPipeline, monkeypatch: pytest.MonkeyPatch, reason: str, kind: type, said: str
):
    """With the remedy; a certificate is not waited for."""
    made = client()

    def fail(*_args: Any, **_options: Any) -> None:
        raise urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.SSLError(reason))

    monkeypatch.setattr(rest.RESTClientObject, "request", fail)
    with pytest.raises(kind, match=said) as told:
        made.submit(small, {"epochs": 1})
    assert type(told.value) is kind


def test_an_ir_file_is_read_as_it_is(small: CompiledPipeline, tmp_path: Path):
    """Compiled IR and the pipeline it came from are the same pipeline."""
    path = tmp_path / "small.yaml"
    path.write_text(small.text)
    assert compiled(path) == replace(small, text=path.read_text())


def test_names_with_any_sign_are_found_again(client: Make, backend: Backend, small: CompiledPipeline):
    """The backend unquotes filters once too often; an experiment of any name is made once."""
    for _ in range(2):
        client().submit(small, {"epochs": 1}, experiment="50% + ä & b=c/d?")
    assert len(backend.rows["experiments"]) == 1


def test_listings_are_read_to_their_end(client: Make, backend: Backend, small: CompiledPipeline, api: KfpApi):
    """An answer that was lost is found on whatever page the run is."""
    made = client()
    for _ in range(3):
        made.submit(small, {"epochs": 1}, run_name="same")
    lost = iter([Reset(carried_out=True)])

    def fault(seen: Seen) -> Reset | None:
        return next(lost, None) if seen.method == "POST" and seen.path.endswith("/runs") else None

    api.fault = fault
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connection, "PAGE", 1)
        run = made.submit(small, {"epochs": 1}, run_name="same")
    assert len(backend.rows["runs"]) == 4
    assert max(backend.rows["runs"].values(), key=lambda row: row["created_at"])["run_id"] == run.run_id
