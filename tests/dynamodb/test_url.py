"""``dynamodb://``: what the URL says reaches the client, and so does what boto3 takes from its environment."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import InstanceMetadataProvider

import durastore
from durastore import urls
from durastore.errors import ConfigError
from durastore_dynamodb import DynamoDBBackend
from durastore_dynamodb.target import Target, parse


def target(url: str, **options: Any) -> Target:
    return parse(urls.parse(url, options))


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's profile nor its role."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr(InstanceMetadataProvider, "load", lambda _: None)


@contextmanager
def server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Somewhere that a client may be sent to: its address, and the headers and bodies that arrived there."""
    heard: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            heard.append({**dict(self.headers), "body": body})
            answer = b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}", heard
        finally:
            made.shutdown()
            thread.join()


def load(url: str) -> None:
    """One request after the look at the table."""
    backend = DynamoDBBackend(target(url))
    backend._api._looked = True
    backend.load("run")
    backend.close()


def test_each_store_speaks_to_its_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores in one process, whatever the environment says: each reaches its endpoint, its table and its region."""
    with server() as (here, first), server() as (there, second):
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
        load(f"dynamodb://one-table?endpoint_url={here}&region=eu-west-1")
        load(f"dynamodb://two-table?endpoint_url={there}&region=ap-south-1&namespace=tenant")
    assert [json.loads(one["body"])["TableName"] for one in (*first, *second)] == ["one-table", "two-table"]
    assert "/eu-west-1/dynamodb/" in first[0]["Authorization"]
    assert "/ap-south-1/dynamodb/" in second[0]["Authorization"]
    assert json.loads(second[0]["body"])["Key"]["pk"]["S"].startswith("tenant/")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"])
def test_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """An emulator works by the environment alone, without region and credentials."""
    with server() as (here, heard):
        monkeypatch.setenv(variable, here)
        load("dynamodb://table")
    assert len(heard) == 1


def test_the_profile_names_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Region, endpoint and credentials of the profile that the URL names."""
    with server() as (here, heard):
        (tmp_path / "config").write_text(
            f"[profile jobs]\nregion = eu-north-1\nendpoint_url = {here}\n"
            "aws_access_key_id = JOBSKEY\naws_secret_access_key = x\n[profile other]\nregion = eu-west-3\n"
        )
        monkeypatch.setenv("AWS_PROFILE", "other")
        load("dynamodb://table?profile=jobs")
    assert "Credential=JOBSKEY/" in heard[0]["Authorization"]
    assert "/eu-north-1/dynamodb/" in heard[0]["Authorization"]


def test_region_and_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """By boto3's own chain; given credentials are used on a local endpoint too."""
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "MINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with server() as (here, heard):
        load(f"dynamodb://table?endpoint_url={here}")
    assert "Credential=MINE/" in heard[0]["Authorization"]
    assert "/sa-east-1/" in heard[0]["Authorization"]


def test_no_region() -> None:
    """The message says what to add to the URL."""
    with pytest.raises(ConfigError, match=r"\?region="):
        durastore.open("dynamodb://table")


def test_no_credentials() -> None:
    """A table of the real AWS without a login: said at the first verb, with the command to run."""
    with (
        durastore.open("dynamodb://table?region=eu-central-1") as store,
        pytest.raises(ConfigError, match="credentials"),
    ):
        store.checkpoint("run").load()


def test_an_unknown_profile() -> None:
    """Said at `open`."""
    with pytest.raises(ConfigError, match="nobody"):
        durastore.open("dynamodb://table?profile=nobody")


def test_options() -> None:
    """All of them reach the client."""
    made = target(
        "dynamodb://my.table_1?region=r&endpoint_url=http://127.0.0.1:1&timeout=2.5&connect_timeout=1.5&connections=7"
        "&attempts=3&fuse=false&namespace=n"
    )
    assert (made.table, made.namespace, made.fuse) == ("my.table_1", "n", False)
    client: Any = made.client(lambda: None)
    config = client.meta.config
    assert (config.read_timeout, config.connect_timeout, config.max_pool_connections) == (2.5, 1.5, 7)
    assert config.retries["total_max_attempts"] == 3
    assert (client.meta.region_name, client.meta.endpoint_url) == ("r", "http://127.0.0.1:1")
    client.close()
    assert target("dynamodb://table", fuse=True).fuse is True
    assert target("dynamodb://table").fuse is None


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb://ab",
        "dynamodb://a/b/c",
        "dynamodb://table%20",
        "dynamodb://table?regoin=x",
        "dynamodb://table?region=",
        "dynamodb://table?endpoint_url=localhost:8000",
        "dynamodb://table?timeout=0",
        "dynamodb://table?timeout=soon",
        "dynamodb://table?attempts=0",
        "dynamodb://table?connections=many",
        "dynamodb://table?fuse=maybe",
    ],
)
def test_bad_urls(url: str) -> None:
    """An error at `open`, not at the first call."""
    with pytest.raises(ConfigError):
        target(url)
