"""Where the table is: ``dynamodb://TABLE?region=…``, credentials, and the client."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ProfileNotFound
from botocore.loaders import create_loader
from botocore.session import Session

from durastore import urls
from durastore.errors import ConfigError
from durastore_dynamodb import signing

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Target", "parse"]

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_DUMMY = "durastore"
"""Credentials for an emulator, which asks for some and checks none."""
_DESCRIPTIONS = create_loader()
"""What botocore knows of services and endpoints. Read once: each session of its own would take 60 ms for it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One table, and how to reach it."""

    table: str
    namespace: str
    region: str | None
    endpoint_url: str | None
    profile: str | None
    timeout: float
    """Seconds to wait for one answer."""
    connect_timeout: float
    connections: int
    """Connections kept open; more threads than that wait for each other."""
    attempts: int
    """Requests that one call of the client may make. The store above calls again until its deadline, so that here only the
    usual case is mended at once: a connection that had been closed while idle."""
    fuse: bool | None
    """Whether `commit` claims the next key in one transaction; None: if it is a transaction anyway, by its progress."""

    def client(self, timestamp: Callable[[], str | None]) -> DynamoDBClient:
        """A client of its own. `timestamp` gives the time to sign with. Raises `ConfigError` for no region or a bad one."""
        try:
            session = Session(profile=self.profile)
            session.register_component("data_loader", _DESCRIPTIONS)
            return self._client(session, timestamp)
        except ProfileNotFound as exc:
            raise ConfigError(f"{exc}; run: aws configure list-profiles") from None
        except (BotoCoreError, ValueError) as exc:  # a region or an endpoint that is none, wherever it is configured
            raise ConfigError(f"boto3: {' '.join(str(exc).split())[:300]}") from exc

    def _client(self, session: Session, timestamp: Callable[[], str | None]) -> DynamoDBClient:
        region = self.region or session.get_config_variable("region")
        local = is_loopback(self.endpoint_url or _configured_endpoint(session))
        if region is None and not local:
            raise ConfigError(
                "no AWS region: add ?region=eu-central-1 to the URL, or set AWS_REGION or the profile's region"
            )
        if local and not _has_credentials(session):
            session.set_credentials(_DUMMY, _DUMMY)
        made: DynamoDBClient = boto3.Session(botocore_session=session).client(
            "dynamodb", region_name=region or "us-east-1", endpoint_url=self.endpoint_url, config=self._config()
        )
        signing.sign_by(made, timestamp)
        return made

    def _config(self) -> Config:
        return Config(
            connect_timeout=self.connect_timeout,
            read_timeout=self.timeout,
            max_pool_connections=self.connections,
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            tcp_keepalive=True,
            signature_version=signing.SIGNATURE,
            user_agent_extra="durastore",
        )


def parse(url: urls.StoreURL) -> Target:
    """Read a URL. Raises `ConfigError` for a bad one."""
    options = url.read(
        region=urls.text,
        endpoint_url=_endpoint,
        profile=urls.text,
        timeout=_positive,
        connect_timeout=_positive,
        connections=_count,
        attempts=_count,
        fuse=urls.boolean,
    )
    if not _TABLE.fullmatch(url.path):
        raise ConfigError(
            f"a DynamoDB URL names a table: dynamodb://TABLE?region=eu-central-1, 3 to 255 of A-Z a-z 0-9 _ . -; not {url}"
        )
    return Target(
        table=url.path,
        namespace=url.namespace,
        region=options.get("region"),
        endpoint_url=options.get("endpoint_url"),
        profile=options.get("profile"),
        timeout=options.get("timeout", 10.0),
        connect_timeout=options.get("connect_timeout", 3.0),
        connections=options.get("connections", 32),
        attempts=options.get("attempts", 2),
        fuse=options.get("fuse"),
    )


def _endpoint(value: Any) -> str:
    parts = urlsplit(urls.text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"an endpoint looks like http://127.0.0.1:8000, not {urls.redact(value)!r}")
    return str(value)


def _positive(value: Any) -> float:
    seconds = urls.seconds(value)
    if not seconds:
        raise ValueError("expected more than 0 seconds")
    return seconds


def _count(value: Any) -> int:
    number = urls.integer(value)
    if number < 1:
        raise ValueError(f"expected 1 or more, not {number}")
    return number


def _configured_endpoint(session: Session) -> str | None:
    """The endpoint that boto3 will take from the environment or the profile, as far as it says whether that is local."""
    if str(session.get_config_variable("ignore_configured_endpoint_urls")).lower() == "true":
        return None
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name]
    try:
        found = session.get_scoped_config().get("endpoint_url")
    except ProfileNotFound:
        return None
    return found if isinstance(found, str) else None


def is_loopback(endpoint: str | None) -> bool:
    """Whether an endpoint is on this machine."""
    host = urlsplit(endpoint).hostname if endpoint else None
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _has_credentials(session: Session) -> bool:
    """Whether any are configured. The machine's own role is not asked for: without one that takes seconds."""
    session.get_component("credential_provider").remove("iam-role")
    return session.get_credentials() is not None
