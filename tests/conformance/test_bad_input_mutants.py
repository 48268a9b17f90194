"""The tests of bad input are themselves tested: each guard taken away in turn, and one of them finds out."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from hypothesis import Phase, settings

import durastore_cloudsql.rows
import durastore_dynamodb.items
import durastore_firestore.documents
import durastore_sqlite.backend
from durastore import payload, urls
from durastore.cli import doctor, exits, moving, printing
from durastore.conformance import rendering
from durastore.errors import PayloadError
from durastore_cloudsql import targets
from tests.cli import test_hostile
from tests.cli.conftest import Shell
from tests.conformance import test_damaged, test_reports
from tests.conformance.broken import Wrapper
from tests.unit import test_fuzz, test_hostile_urls

pytestmark = pytest.mark.timeout(60)
WRONG = (Exception, pytest.fail.Exception)
"""However a test says that something is wrong."""
Patch = pytest.MonkeyPatch
PHASES = (Phase.explicit, Phase.generate)
"""Found is enough: it need not be shrunk."""


def _as_it_is(text: str, *_: Any, **__: Any) -> str:
    return text


def _guessing(patch: Patch, module: Any, name: str) -> None:
    """A decoder without `sound`."""
    patch.setattr(module, name, getattr(module, name).__wrapped__)


DECODERS: dict[str, tuple[Callable[[Patch], None], Callable[[], Any]]] = {
    "a password in an error": (lambda patch: patch.setattr(urls, "redact", _as_it_is), test_fuzz.test_urls),
    "chunks as they come": (
        lambda patch: patch.setattr(payload, "_joined", lambda chunks, **_: b"".join(chunks)),
        test_fuzz.test_truncated_chunks,
    ),
    "a codec's own error": (
        lambda patch: patch.setattr(payload, "_decoded", lambda raw, codec: codec.decode(raw)),
        test_fuzz.test_payloads,
    ),
    "any row of SQL": (lambda patch: _guessing(patch, durastore_cloudsql.rows, "record_of"), test_fuzz.test_rows),
    "any item of DynamoDB": (
        lambda patch: _guessing(patch, durastore_dynamodb.items, "run_of"),
        test_fuzz.test_dynamodb_items,
    ),
    "any document of Firestore": (
        lambda patch: _guessing(patch, durastore_firestore.documents, "record_of"),
        test_fuzz.test_firestore_documents,
    ),
    "any key": (lambda patch: patch.setattr(test_fuzz, "checked", _as_it_is), test_fuzz.test_keys),
    "any text in a report": (
        lambda patch: patch.setattr(rendering, "plain", _as_it_is),
        test_reports.test_hostile_strings_are_shown_not_obeyed,
    ),
    "any markup in a report": (
        lambda patch: patch.setattr(rendering, "_MARKUP", {}),
        test_reports.test_hostile_strings_are_shown_not_obeyed,
    ),
}


@pytest.mark.parametrize("guard", DECODERS)
def test_decoders(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads URLs, values, records and keys, and what shows them."""
    take_away, test = DECODERS[guard]
    take_away(monkeypatch)
    with pytest.raises(WRONG):
        settings(database=None, phases=PHASES)(test)() if hasattr(test, "hypothesis") else test()


class _Mending(Wrapper):
    """removes a record that it cannot read, and claims the key"""

    def claim(self, request: Any, **rest: Any) -> Any:
        try:
            return self._backend.claim(request, **rest)
        except PayloadError:
            self._backend._connections.write(lambda connection: connection.execute("DELETE FROM durastore_records"))
            return self._backend.claim(request, **rest)


class _Wordy(Wrapper):
    """says it in two lines"""

    def read(self, keys: Any, **rest: Any) -> Any:
        try:
            return self._backend.read(keys, **rest)
        except PayloadError as exc:
            raise PayloadError(f"{exc}\n{exc}") from exc


@pytest.mark.parametrize("wrap", [_Mending, _Wordy])
def test_damaged_records(wrap: Any, tmp_path: Path) -> None:
    """A store that mends what it does not understand, or says it badly."""
    with pytest.raises(WRONG):
        test_damaged.refused("sqlite", "state", "suspended", tmp_path, wrap)


@pytest.mark.parametrize(("field", "value"), [("state", "suspended"), ("attempt", "many"), ("owner", b"x")])
def test_damaged_records_guessed(field: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes what it reads as it is."""
    _guessing(monkeypatch, durastore_sqlite.backend, "_record_of")
    with pytest.raises(WRONG):
        test_damaged.refused("sqlite", field, value, tmp_path)


def _any_file(patch: Patch) -> None:
    for parameter in moving.import_store.params:
        patch.setattr(parameter, "type", click.STRING)


def _any_letters(patch: Patch) -> None:
    patch.setattr(printing, "json", SimpleNamespace(dumps=partial(json.dumps, ensure_ascii=False)))


def _one_namespace(patch: Patch) -> None:
    patch.setattr(urls, "_namespace", lambda _: "tenant")


COMMANDS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "errors as they are": (lambda patch: patch.setattr(exits, "visible", _as_it_is), "import"),
    "tables as they are": (lambda patch: patch.setattr(printing, "visible", _as_it_is), "record"),
    "lists as they are": (lambda patch: patch.setattr(printing, "visible", _as_it_is), "claims --run"),
    "findings as they are": (lambda patch: patch.setattr(doctor, "visible", _as_it_is), "doctor path"),
    "JSON in any letters": (_any_letters, "show"),
    "any file's name": (_any_file, "import"),
    "any folder": (lambda patch: patch.setattr(moving, "check_writable", _as_it_is), "export -o"),
    "one namespace for all": (_one_namespace, "export"),
}


@pytest.mark.parametrize("guard", COMMANDS)
def test_commands(guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands between hostile text and the terminal, the file system, or another tenant."""
    take_away, place = COMMANDS[guard]
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    monkeypatch.setenv("DURASTORE_URL", shell.url)
    test_hostile.examined(shell, place)
    take_away(monkeypatch)
    with pytest.raises(WRONG):
        test_hostile.examined(shell, place)


@pytest.mark.parametrize("place", ["sqlite:///{}", "mysql://u:p@{}..local/d"])
def test_urls(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL of any characters, and a host of any name."""
    monkeypatch.setattr(urls, "_check_characters", _as_it_is)
    monkeypatch.setattr(targets, "_host", _as_it_is)
    with pytest.raises(WRONG):
        test_hostile_urls.test_every_place(place, tmp_path, monkeypatch)
