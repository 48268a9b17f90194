"""URLs, payloads and stored items as an attacker would send them: an error of ours, or a right answer; nothing else."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durastore import payload, urls
from durastore.codec import JSONCodec
from durastore.contract import Limits, Payload, StoredProgress, StoredRecord
from durastore.errors import ConfigError, DurastoreError, PayloadError
from durastore.keys import KEY_BYTES_MAX, checked
from durastore.soundness import sound

EXAMPLES = 300
SCHEMES = ("sqlite", "postgresql", "mysql", "cloudsql+postgresql", "firestore", "dynamodb", "memory", "ftp", "")
OPTIONS = (
    "namespace",
    "create",
    "region",
    "endpoint_url",
    "emulator_host",
    "timeout",
    "sslmode",
    "x",
    "busy_timeout",
    "",
)
bits = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    (
        "..",
        "/",
        "?",
        "#",
        "%",
        "%00",
        "\x1b[2J",
        "<b>",
        "';--",
        "@",
        ":",
        "[",
        "[::1",
        "//",
        "user:secret@host",
        "host:99999999",
    )
)
addresses = st.lists(bits, max_size=4).map("".join)
queries = st.lists(st.tuples(st.sampled_from(OPTIONS) | bits, bits), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)
store_urls = st.builds("{}://{}?{}".format, st.sampled_from(SCHEMES), addresses, queries) | bits


@settings(max_examples=EXAMPLES, deadline=None)
@given(store_urls)
@example("postgresql://user:secret@host:port/db")
@example("dynamodb://t?endpoint_url=http://[::1")
@example("firestore://p?emulator_host=[")
def test_urls(url: str) -> None:
    """Any text is a URL of ours, or a `ConfigError`; a password in it is not shown."""
    try:
        shown = str(urls.parse(url))
    except ConfigError as exc:
        shown = str(exc)
    assert "secret@" not in shown


@settings(max_examples=EXAMPLES, deadline=None)
@given(store_urls)
@example("dynamodb://t?endpoint_url=http://[::1")
@example("dynamodb://t?endpoint_url=http://host:99999999")
@example("firestore://p?emulator_host=[")
@example("firestore://%00/x?emulator_host=h:1")
@example("postgresql://[::1/db")
@example("postgresql://host:99999999/db")
@example("mysql://host:port/db")
def test_targets(url: str) -> None:
    """What each backend reads out of its URL, before anything is opened: a target, or an error of ours in one line."""
    from durastore_cloudsql import targets
    from durastore_dynamodb.target import parse as dynamodb
    from durastore_firestore.target import parse as firestore

    said = ""
    try:
        parsed = urls.parse(url)
        if parsed.scheme == "dynamodb":
            dynamodb(parsed)
        elif parsed.scheme == "firestore" and "emulator_host" in parsed.options:
            firestore(parsed)
        elif parsed.scheme in ("postgresql", "mysql"):
            targets.target(parsed, {})
    except DurastoreError as exc:
        said = str(exc)
    assert "secret@" not in said


headers = st.sampled_from(
    (
        b"json\n",
        b"json zlib\n",
        b"pickle\n",
        b"json size=5 sha256=00 chunks=1\n",
        b"json size=-1\n",
        b"\n",
        b"json",
        b"\xff\n",
    )
)
bodies = st.builds(lambda head, body: head + body, headers, st.binary(max_size=40)) | st.binary(max_size=40)


@settings(max_examples=EXAMPLES, deadline=None)
@given(bodies, st.none() | st.just("blob"), st.lists(st.binary(max_size=10), max_size=3))
def test_payloads(data: bytes, blob: str | None, chunks: list[bytes]) -> None:
    """Any bytes are a value, or a `PayloadError`: never another codec's, never a shorter one, never a traceback."""
    said = ""
    try:
        payload.unpack(Payload(data, blob), JSONCodec(), lambda _: chunks)
    except PayloadError as exc:
        said = str(exc)
    assert "\n" not in said


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(min_size=200, max_size=400), st.integers(0, 500), st.sampled_from(("cut", "swap", "drop", "flip")))
def test_truncated_chunks(noise: bytes, where: int, how: str) -> None:
    """A value whose chunks were cut, swapped, dropped or changed is a `PayloadError`, whatever was done."""
    packed = payload.pack(noise.hex(), JSONCodec(), Limits(inline=64, chunk=40), lambda: "blob")
    chunks = list(packed.chunks)
    index = where % len(chunks)
    piece = chunks[index]
    changed = {
        "cut": [*chunks[:index], piece[:-1], *chunks[index + 1 :]],
        "swap": [*chunks[1:], chunks[0]],
        "drop": chunks[:index] + chunks[index + 1 :],
        "flip": [*chunks[:index], bytes([piece[0] ^ 1]) + piece[1:], *chunks[index + 1 :]],
    }[how]
    if changed != chunks:
        with pytest.raises(PayloadError):
            payload.unpack(packed.payload, JSONCodec(), lambda _: changed)


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
attributes = st.dictionaries(st.sampled_from(("S", "N", "B", "NULL", "M")), anything, max_size=2)
names = st.sampled_from((*(field.name for field in fields(StoredRecord)), "sk", "pk", "run", "step", "blob"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(names, attributes | anything, max_size=12))
def test_dynamodb_items(item: dict[str, Any]) -> None:
    """Any item is a record or run whose fields are what they should be, or a `PayloadError`."""
    from durastore_dynamodb.items import record_of, run_of
    from durastore_dynamodb.layout import Names

    for read in (lambda: record_of(item, Names("default")), lambda: run_of(item)):
        try:
            found = read()
        except PayloadError as exc:
            found = exc
        assert isinstance(found, (StoredRecord, StoredProgress, PayloadError))
        assert "\n" not in str(found) or not isinstance(found, PayloadError)


stored = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5) | st.binary(max_size=5)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(names | st.sampled_from(("at", "drawn", "saved", "retain", "beat")), stored, max_size=14))
def test_firestore_documents(fields: dict[str, Any]) -> None:
    """The same for documents."""
    from google.cloud.firestore_v1.types import Document

    from durastore_firestore import wire
    from durastore_firestore.documents import record_of, run_of

    document = Document.pb(Document())
    for name, value in fields.items():
        wire.set_value(document.fields[name], value)
    for read in (record_of, run_of):
        try:
            found = read(document)
        except PayloadError as exc:
            assert "\n" not in str(exc)  # noqa: PT017  either may happen
            continue
        assert isinstance(getattr(found, "progress", found).run_id, str)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(anything, min_size=0, max_size=20))
def test_rows(row: list[Any]) -> None:
    """The same for rows of SQL."""
    from durastore_cloudsql.rows import record_of, run_of

    for read in (record_of, run_of):
        try:
            found = read(row)
        except PayloadError:
            continue
        assert isinstance(found.run_id, str)


def test_sound_keeps_what_is_right() -> None:
    """A record as durastore writes it passes unchanged."""
    record = StoredRecord("k", "r", "claimed", 1, 1, "n", "o", 1, 2, 0, None, None, None, None, None, 1, 1)
    assert sound(lambda: record)() is record


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=20) | anything)
def test_keys(key: Any) -> None:
    """Any text is a key as it is, or an error of ours that shows it harmlessly."""
    try:
        said = checked(key)
    except DurastoreError as exc:
        assert "\x1b" not in str(exc)  # noqa: PT017  either may happen
        return
    assert said == key
    assert 0 < len(said.encode()) <= KEY_BYTES_MAX
    assert "\0" not in said
