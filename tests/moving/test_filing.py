"""Exports and imports: lines by the schema, every byte back, one payload at a time in memory, no line taken on trust."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import durastore
from durastore import moving
from durastore.errors import ConfigError, PayloadError
from durastore.moving.ndjson import LINE_MAX
from durastore.moving.tally import Tally
from durastore.store import Store
from tests.moving.test_copying import Told, fresh
from tests.moving.zoo import contents, filled, opened, record

SCHEMA = json.loads(moving.schema())


def exported(store: Store, told: Told | None = None) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    moving.exported(store, lines.append, namespace="default", report=told or Told())
    return lines


def raw(lines: Iterable[Any]) -> Iterator[bytes]:
    return iter([line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines])


def imported(lines: Iterable[Any], store: Store, told: Told | None = None) -> Tally:
    return moving.imported(raw(lines), store, report=told or Told())


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path_factory.mktemp('zoo')}/zoo.db"
    filled(url)
    with opened(url) as store:
        yield store


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "mysql", "firestore", "dynamodb"])
def test_there_and_back(zoo: Store, store: str, tmp_path: Path) -> None:
    """What is exported and imported is there as it was: binary, encrypted, compressed, chunked, lost and empty results."""
    lines, before = exported(zoo), contents(zoo)
    with opened(fresh(store, tmp_path)) as there:
        tally = imported(lines, there)
        assert (tally.placed, tally.refused) == (len(before), 0)
        assert contents(there) == before
        assert sorted(map(json.dumps, exported(there)[1:-1])) == sorted(map(json.dumps, lines[1:-1]))
        again = imported(lines, there)
        assert (again.placed, again.same) == (0, len(before))


def test_every_line_is_by_the_schema(zoo: Store) -> None:
    """Each line is a document of the JSON Schema that is shipped, which is itself one; all types of lines occur."""
    validator = jsonschema.Draft202012Validator
    validator.check_schema(SCHEMA)
    lines = exported(zoo)
    for line in lines:
        validator(SCHEMA).validate(line)
    assert {line["type"] for line in lines} == set(SCHEMA["$defs"]) - {"payload"}
    kinds = {key for line in lines if line["type"] == "record" and line["result"] for key in line["result"]}
    assert kinds == set(SCHEMA["$defs"]["payload"]["properties"])


def test_lines_are_short(zoo: Store) -> None:
    """No line is longer than readers take, whatever the payload."""
    with opened("memory://") as store:
        store.checkpoint("run").run_once("controls", lambda: "\x01" * 40_000)
        store.checkpoint("run").run_once("random", lambda: os.urandom(2_000_000).hex())
        assert max(len(json.dumps(line)) for line in exported(store)) < LINE_MAX // 4


def sound() -> list[dict[str, Any]]:
    """A small export with each type of line."""
    with opened("memory://") as store:
        store.checkpoint("run").run_once("chunked", lambda: os.urandom(700_000).hex(), progress=(1, {"x": 1}))
        store.backend.place([record("key")])
        return exported(store)


LINES = sound()
RECORD = next(number for number, line in enumerate(LINES) if line.get("key") == "key")
CHUNKED = next(number for number, line in enumerate(LINES) if line.get("key") == "chunked")
RUN = next(number for number, line in enumerate(LINES) if line["type"] == "run")


def changed(number: int, **fields: Any) -> list[Any]:
    return [*LINES[:number], {**LINES[number], **fields}, *LINES[number + 1 :]]


def without(number: int, field: str) -> list[Any]:
    return [
        *LINES[:number],
        {name: value for name, value in LINES[number].items() if name != field},
        *LINES[number + 1 :],
    ]


BAD: dict[str, list[Any]] = {
    "empty": [],
    "not an export": [b"hello\n"],
    "no beginning": LINES[1:],
    "a later version": changed(0, version=2),
    "cut short": LINES[:-1],
    "cut within a line": [*LINES[:-1], b'{"type": "e'],
    "cut within chunks": LINES[: CHUNKED + 2],
    "something after the end": [*LINES, LINES[1]],
    "a line that is no object": [LINES[0], b"[1]\n"],
    "a line that is no UTF-8": [LINES[0], b'{"type": "\xff"}\n'],
    "a line too long": [LINES[0], b" " * (LINE_MAX + 1)],
    "nested without end": [LINES[0], b"[" * 100_000],
    "an unknown type": changed(RECORD, type="thing"),
    "an unknown field": changed(RECORD, color="red"),
    "a field missing": without(RECORD, "token"),
    "a result missing": without(RECORD, "result"),
    "a claim that is alive": changed(RECORD, state="claimed"),
    "a token of text": changed(RECORD, token="5"),
    "a token that is true": changed(RECORD, token=True),
    "a token below 0": changed(RECORD, token=-1),
    "a token beyond 64 bits": changed(RECORD, token=2**63),
    "a float": changed(RECORD, token=1.5),
    "a key too long": changed(RECORD, key="k" * 1025),
    "an empty key": changed(RECORD, key=""),
    "a key with NUL": changed(RECORD, key="a\0"),
    "a key with half a character": changed(RECORD, key="\ud800"),
    "a run id that is none": changed(RUN, run_id=None),
    "an owner that is none": changed(RECORD, owner=None),
    "a result without a commit": changed(RECORD, state="abandoned"),
    "retention without a commit": changed(RECORD, state="in_doubt", result=None, retain_until=5),
    "a payload of text": changed(RECORD, result="1"),
    "a payload with two bodies": changed(RECORD, result={"codec": "json", "text": "1", "base64": "MQ=="}),
    "a payload without a body": changed(RECORD, result={"codec": "json"}),
    "a codec with a blank": changed(RECORD, result={"codec": "js on", "text": "1"}),
    "no base64": changed(RECORD, result={"codec": "json", "base64": "???"}),
    "half a character as text": changed(RECORD, result={"codec": "json", "text": "\ud800"}),
    "zip that is 1": changed(RECORD, result={"codec": "json", "zip": 1, "text": "1"}),
    "another result": changed(RECORD, result={"codec": "json", "text": "2"}),
    "another token": changed(RECORD, token=6),
    "another step": changed(RUN, step=2),
    "a record dropped": LINES[:RECORD] + LINES[RECORD + 1 :],
    "a record twice": [*LINES[: RECORD + 1], LINES[RECORD], *LINES[RECORD + 1 :]],
    "a chunk dropped": LINES[: CHUNKED + 1] + LINES[CHUNKED + 2 :],
    "chunks swapped": [*LINES[: CHUNKED + 1], LINES[CHUNKED + 2], LINES[CHUNKED + 1], *LINES[CHUNKED + 3 :]],
    "a chunk too many": [*LINES[: CHUNKED + 1], LINES[CHUNKED + 1], *LINES[CHUNKED + 1 :]],
    "a payload of gigabytes": changed(
        CHUNKED, result={"codec": "json", "bytes": 2**40, "sha256": "0" * 64, "chunks": 10**9}
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_not_an_export_is_refused(what: str) -> None:
    """Whatever is wrong with an export, it is refused when it is checked and when it is imported, and one line says why."""
    with pytest.raises((ConfigError, PayloadError), match="export") as caught:
        moving.checked(raw(BAD[what]))
    assert "\n" not in str(caught.value)
    with opened("memory://") as there, pytest.raises((ConfigError, PayloadError)):
        imported(BAD[what], there)


def test_the_sound_export_is_sound() -> None:
    """What the bad ones are made of is good."""
    assert moving.checked(raw(LINES)).keys == 2


def test_what_is_there_is_never_overwritten() -> None:
    """An import refuses by name what the store has otherwise, and places the rest."""
    with opened("memory://") as there:
        there.backend.place([record("key", token=9)])
        told = Told()
        tally = imported(LINES, there, told)
        assert (told.names, tally.placed) == (["key 'key'"], 2)
        found = there.record("key")
        assert found is not None
        assert found.token == 9


def test_a_damaged_result_is_left_out() -> None:
    """An export without a damaged result is whole in itself, and names what it lacks."""
    with opened("memory://") as store, opened("memory://") as there:
        for key in ("whole", "damaged"):
            store.checkpoint("run").run_once(key, lambda: os.urandom(200_000).hex())
        (stored,) = store.backend.read(["damaged"])
        assert stored is not None
        assert stored.result is not None
        store.backend._space.chunks.pop(stored.result.blob)  # type: ignore[attr-defined]
        told = Told()
        assert imported(exported(store, told), there).placed == 1
        assert told.names == ["key 'damaged'"]


def test_live_claims_are_refused() -> None:
    """An export of a store at work would not be whole."""
    with opened("memory://") as store, store.checkpoint("run").claim("alive") as claim:
        with pytest.raises(durastore.AwaitTimeout, match="'alive'"):
            exported(store)
        claim.commit(1)


SIZE = 8 * 1024 * 1024
"""Bytes; more take longer, and show no more."""
PEAK = """
import os, resource, sys
from durastore import moving
from durastore.cli.moving import _lines
from tests.moving.test_copying import Told
from tests.moving.zoo import Bytes, opened
import durastore, json
count, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with durastore.open(f"sqlite:///{folder}/s{count}.db", codec=Bytes()) as store:
    for number in range(count):
        store.checkpoint("run").run_once(f"key-{number}", lambda: os.urandom(size))
with opened(f"sqlite:///{folder}/s{count}.db") as source, opened(f"sqlite:///{folder}/t{count}.db") as there:
    with open(f"{folder}/{count}.ndjson", "w") as file:
        moving.exported(source, lambda line: file.write(json.dumps(line) + "\\n"), report=Told())
    with open(f"{folder}/{count}.ndjson", "rb") as file:
        assert moving.imported(_lines(file), there, report=Told()).placed == count
    tally, digest = moving.verify(source, there, report=Told())
    assert (tally.same, tally.digest) == (count, digest)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_one_payload_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """Large payloads are moved whole, and six of them take no more memory than two."""
    peaks = []
    for count in (2, 6):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(count), str(SIZE), str(tmp_path)],
            capture_output=True, text=True, timeout=200, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 12, peaks
