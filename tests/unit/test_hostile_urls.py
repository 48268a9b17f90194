"""URLs as an attacker would write them, up to the first call of the store: an error of ours in one line, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import urls
from durastore.errors import ConfigError, DurastoreError

HERE = "127.0.0.1:1"
"""Where nobody listens."""
PLACES = (
    "{}://x",
    "sqlite:///{}",
    "sqlite:////{}/jobs.db",
    "sqlite:///jobs.db?namespace={}",
    "sqlite:///jobs.db?busy_timeout={}",
    "sqlite:///jobs.db?{}=1",
    f"postgresql://{{}}:p@{HERE}/d",
    f"postgresql://u:{{}}@{HERE}/d",
    "postgresql://u:p@{}..local/d",
    f"postgresql://u:p@{HERE}/{{}}",
    f"postgresql://u@{HERE}/d?schema={{}}",
    f"postgresql://u@{HERE}/d?sslmode=verify-full&sslrootcert={{}}",
    f"mysql://{{}}:p@{HERE}/d",
    f"mysql://u:{{}}@{HERE}/d",
    "mysql://u:p@{}..local/d",
    f"mysql://u:p@{HERE}/{{}}",
    f"mysql://u@{HERE}/d?table_prefix={{}}",
    f"mysql://u@{HERE}/d?sslmode=verify-full&sslrootcert={{}}",
    f"firestore://{{}}/d?emulator_host={HERE}",
    f"firestore://p/{{}}?emulator_host={HERE}",
    f"firestore://p?emulator_host={HERE}&collection={{}}",
    "firestore://p?emulator_host={}",
    f"dynamodb://{{}}?region=eu-west-1&endpoint_url=http://{HERE}",
    f"dynamodb://table?endpoint_url=http://{HERE}&region={{}}",
    "dynamodb://table?region=eu-west-1&endpoint_url={}",
    "dynamodb://table?region=eu-west-1&profile={}",
    "memory://{}",
)
HOSTILE = {
    "nul": "k\0x",
    "encoded nul": "k%00x",
    "surrogate": "k\udcff\ud800",
    "encoded surrogate": "k%ED%B3%BF",
    "newlines": "k\r\nerror: none\u2028",
    "encoded newlines": "k%0D%0Aerror: none",
    "escapes": "\x1b[2J\x9b31m",
    "encoded escapes": "%1B[2J",
    "letters": "ü€😀",
    "long": "k" * 5000,
    "path": "../../../../etc/passwd",
    "nothing": "",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", PLACES)
def test_every_place(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by what it is, or the store is not there, or there is a store that works."""
    monkeypatch.chdir(tmp_path)
    for name, text in HOSTILE.items():
        said = _opened(place.replace("{}", text))
        assert len(said.splitlines()) <= 1, (name, said)


def _opened(url: str) -> str:
    try:
        with durastore.Store(urls.connect(urls.parse(url)), url=str(urls.parse(url))) as store:
            store.deadlines = dict.fromkeys(("time", "read", "setup"), 0.02)
            if store.backend.creates_itself:
                store.setup()
            store.record("key")
    except DurastoreError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize("name", ["nul", "encoded nul", "surrogate", "newlines", "escapes"])
def test_characters(name: str) -> None:
    """What no URL holds is named by its escape, and nothing else of the URL is shown: it may be part of a password."""
    with pytest.raises(ConfigError, match=r"the store URL holds '\\") as raised:
        urls.parse(f"postgresql://user:secret{HOSTILE[name]}@host/db")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["encoded nul", "encoded newlines", "encoded escapes"])
def test_encoded_characters(name: str) -> None:
    """Nor may they stand in an address or an option, percent-encoded; a password may be of any characters but NUL."""
    for url in ("postgresql://user@host/d{}", "sqlite:///{}", "x://y?a={}"):
        with pytest.raises(ConfigError, match=r"the store URL holds '\\"):
            urls.parse(url.format(HOSTILE[name]))
    if name != "encoded nul":
        assert urls.parse(f"postgresql://user:{HOSTILE[name]}@host/d").scheme == "postgresql"


def test_by_keyword() -> None:
    """An option by keyword is held to the same."""
    for text in ("a\0b", "\ud800", "a\nb", ""):
        with pytest.raises(ConfigError, match="expected text"):
            durastore.open("dynamodb://table", region=text)


FILTERS: list[dict[str, Any]] = [
    {"run_id": "\udcff"},
    {"run_id": ""},
    {"run_id": "k\0"},
    {"prefix": "\udcff"},
    {"prefix": "k\0"},
]


@pytest.mark.parametrize("filters", FILTERS)
def test_filters(filters: dict[str, Any]) -> None:
    """A filter that no key can pass is refused as such a key is, at once, with `await` and without, before any store is asked."""
    with durastore.open("memory://") as store, pytest.raises(durastore.InvalidKey):
        store.records(**filters)


async def _with_await(filters: dict[str, Any]) -> None:
    from durastore import aio

    async with await aio.open("memory://") as store:
        with pytest.raises(durastore.InvalidKey):
            [record async for record in store.records(**filters)]


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_with_await(filters: dict[str, Any]) -> None:
    """The same."""
    import asyncio

    asyncio.run(_with_await(filters))
