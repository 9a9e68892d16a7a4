# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in a bucket of a server that speaks S3, over HTTP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, open_store
from kfp_volcano.elastic.runtime.events import Events
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "checkpoints"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket, which clients find by their own variables."""
    variables = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**variables, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket=BUCKET)
    yield client
    for key in keys(client):
        client.delete_object(Bucket=BUCKET, Key=key)
    client.delete_bucket(Bucket=BUCKET)
    client.close()


def keys(client: Any) -> list[str]:
    return [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


def checkpoints(keep: int = 2) -> Checkpoints:
    return Checkpoints(open_store(f"s3://{BUCKET}/team/job"), keep=keep, owner="w-0", events=Events(None, owner="w-0"))


def save(step: int) -> None:
    checkpoints().write({"weight": torch.full((3,), float(step))}, {"step": step, "lineage": f"{step:032x}"[::-1]})


def test_the_newest_is_found_and_few_are_kept(bucket: Any) -> None:
    """By a process that knows nothing but the URL; what is too old is gone from the bucket."""
    assert list(checkpoints().whole()) == []
    for step in (1, 2, 3):
        save(step)
    assert [manifest.step for manifest, _ in checkpoints().whole()] == [3, 2]
    assert {key.split("/")[2].split("-")[1] for key in keys(bucket)} == {"0000000002", "0000000003"}


@pytest.mark.parametrize("how", ["changed", "gone", "cut"])
def test_what_is_not_what_was_written_is_passed_over(bucket: Any, how: str) -> None:
    """The one before is used, and it is said which was damaged."""
    save(1)
    save(2)
    key = next(key for key in keys(bucket) if "step-0000000002" in key and key.endswith(".pt"))
    whole = bucket.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    if how == "gone":
        bucket.delete_object(Bucket=BUCKET, Key=key)
    else:
        damaged = whole[:-1] if how == "cut" else whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]
        bucket.put_object(Bucket=BUCKET, Key=key, Body=damaged)
    assert [manifest.step for manifest, _ in checkpoints().whole()] == [1]


def test_one_without_its_manifest_was_never_finished(bucket: Any) -> None:
    """There is no renaming in a bucket: the manifest, which comes last, is what counts."""
    save(1)
    save(2)
    key = next(key for key in keys(bucket) if "step-0000000002" in key and key.endswith("manifest.json"))
    bucket.delete_object(Bucket=BUCKET, Key=key)
    assert [manifest.step for manifest, _ in checkpoints().whole()] == [1]


def test_a_training_goes_on_from_a_bucket(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended in the middle and begun anew on another volume, it comes to the weights of one that was left alone."""
    monkeypatch.setenv(names.ENV_ELASTICITY, f'{{"checkpoint_url": "s3://{BUCKET}/runs/1"}}')
    train(tmp_path / "one", until=4)
    resumed = train(tmp_path / "other")
    assert any(key.startswith("runs/1/step-") for key in keys(bucket))
    monkeypatch.delenv(names.ENV_ELASTICITY)
    assert torch.equal(resumed, train(tmp_path / "alone"))


def train(folder: Path, until: int = 99) -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    data = torch.arange(40.0).reshape(10, 4) / 40
    training = Training(model, optimizer, size=10, batch=4, epochs=3, job_dir=folder)
    for share in training:
        if training.steps == until:
            break
        training.checkpoint()
        training.step((model(data[share.ids]) ** 2).mean())
    return model.weight.detach().clone()
