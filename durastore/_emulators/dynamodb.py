"""DynamoDB by ministack, whose transactions are isolated, and by moto behind one lock as a second opinion."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from durastore._emulators import venvs
from durastore._emulators.answers import NotRun
from durastore._emulators.asking import ask
from durastore._emulators.recipe import HOST, Recipe, Site

__all__ = ["ministack", "moto", "probe", "url_of"]

MINISTACK = "1.5.33"
MOTO = "5.2.5"
_LIST_TABLES = {
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": "AWS4-HMAC-SHA256 Credential=durastore/20260101/us-east-1/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=none",
}
"""Emulators read the region out of the signature and do not check it."""


def ministack() -> Recipe | NotRun:
    """Runs ministack in a virtual environment of its own: it pins an old botocore."""
    missing = _missing()
    if missing is not None:
        return missing
    name, needs = f"ministack-{MINISTACK}", [f"ministack=={MINISTACK}", "hypercorn>=0.17,<1"]
    return Recipe(
        what=f"ministack {MINISTACK} ({'built' if venvs.built(name) else 'to be built by pip'})",
        command=lambda site: [
            str(venvs.environment(name, needs)),
            "-I",
            "-m",
            "hypercorn",
            "-b",
            f"{HOST}:{site.port}",
            "ministack.app:app",
        ],
        install=lambda: venvs.environment(name, needs),
        url=_url,
        probe=lambda url: probe(url, f"ministack {MINISTACK}"),
        environment=lambda site: {"GATEWAY_PORT": str(site.port), "SERVICES": "dynamodb", "IOT_MTLS_ENABLED": "0"},
        start_max=120,
    )


def moto() -> Recipe | NotRun:
    """Runs moto's server behind one lock, without which its transactions lose updates."""
    missing = _missing()
    if missing is not None:
        return missing
    name, needs = f"moto-{MOTO}", [f"moto[dynamodb]=={MOTO}", "flask", "flask-cors", "werkzeug"]
    script = str(Path(__file__).with_name("moto_locked.py"))
    return Recipe(
        what=f"moto {MOTO} behind one lock ({'built' if venvs.built(name) else 'to be built by pip'})",
        command=lambda site: [str(venvs.environment(name, needs)), "-I", script, HOST, str(site.port)],
        install=lambda: venvs.environment(name, needs),
        url=_url,
        probe=lambda url: probe(url, f"moto {MOTO} behind one lock"),
        start_max=120,
    )


def _missing() -> NotRun | None:
    if sys.platform == "win32":
        return NotRun("DynamoDB's emulators are run on Unix only", "install Docker")
    if not find_spec("boto3"):
        return NotRun("boto3 is not installed", "run: pip install 'durastore[dynamodb]'")
    if not find_spec("ensurepip"):
        return NotRun("this Python cannot make virtual environments", "run: apt-get install python3-venv")
    return None


def _url(site: Site) -> str:
    return url_of(f"http://{HOST}:{site.port}")


def url_of(endpoint: str) -> str:
    """The store's URL for an emulator at ``http://HOST:PORT``."""
    return f"dynamodb://durastore?endpoint_url={quote(endpoint, safe=':/')}&region=us-east-1"


def probe(url: str, version: str = "an emulator of DynamoDB") -> str:
    """List the tables. A URL without an endpoint is the real DynamoDB, and is believed."""
    endpoint = parse_qs(urlsplit(url).query).get("endpoint_url")
    if not endpoint:
        return "DynamoDB"
    ask(endpoint[0], b"{}", _LIST_TABLES)
    return version
