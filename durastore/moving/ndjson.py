"""A store's contents as NDJSON: one JSON document a line, by the schema in ``export.schema.json``.

::

    {"type": "begin", "version": 1, …}
    {"type": "record", "key": …, "token": …, "result": {"codec": "json", "text": "…"}}
    {"type": "record", "key": …, "result": {"codec": "json", "zip": true, "bytes": 1500000, "sha256": …, "chunks": 3}}
    {"type": "chunk", "base64": …}
    {"type": "chunk", "base64": …}
    {"type": "chunk", "base64": …}
    {"type": "run", "run_id": …, "step": …, "state": …}
    {"type": "end", "keys": 2, "runs": 1, "digest": …}

A payload is the bytes of its codec: as text where they are UTF-8, in base64 where not, and in lines of their own, right after
the thing that they belong to, where they are many. So a line has at most about 700 KB, and one payload at a time is in memory.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NoReturn

from durastore import keys
from durastore.contract import StoredProgress, StoredRecord
from durastore.errors import ConfigError, DurastoreError, PayloadError
from durastore.moving.things import MovedRecord, MovedRun, Thing, plain
from durastore.payload import PAYLOAD_BYTES_MAX, Body, is_codec

__all__ = ["INLINE", "LINE_MAX", "VERSION", "Line", "Lines", "end_line", "first_line", "lines_of"]

VERSION = 1
INLINE = 256 * 1024
"""Bytes of a payload that stand in the line of their thing."""
_CHUNK = 512 * 1024
"""Bytes of a chunk line."""
LINE_MAX = 4 * 1024 * 1024
"""Characters of a line; a payload as text may need six for each byte."""
_SLACK = 64 * 1024
"""Bytes by which compression may lengthen what does not compress."""
_INTEGER_MAX = 2**63 - 1
_STATES = ("in_doubt", "abandoned", "committed")
_RECORD = {
    "key": str,
    "run_id": str,
    "state": str,
    "token": int,
    "attempt": int,
    "nonce": str,
    "owner": str,
    "lease": (int, None),
    "incarnation": int,
    "fingerprint": (str, None),
    "error": (str, None),
    "retain_until": (int, None),
    "taken_from": (str, None),
    "created_at": int,
    "updated_at": int,
}
_RUN = {"run_id": str, "step": int, "incarnation": int, "updated_at": int}
Line = dict[str, Any]
"""A line as JSON has it."""


def first_line(*, scheme: str, namespace: str | None, created_at: int) -> Line:
    """What an export begins with. `created_at`: microseconds by the source's clock."""
    return {
        "type": "begin",
        "version": VERSION,
        "scheme": scheme,
        "namespace": namespace,
        "created_at": created_at,
    }


def end_line(*, keys: int, runs: int, digest: str) -> Line:
    """What an export ends with. One without it was cut short."""
    return {"type": "end", "keys": keys, "runs": runs, "digest": digest}


def lines_of(thing: Thing) -> Iterator[Line]:
    """A thing, and its payload's chunks if it has any."""
    kind, place = ("run", "state") if isinstance(thing, MovedRun) else ("record", "result")
    body = thing.body
    if body is None:
        yield {"type": kind, **plain(thing), place: None}
    elif len(body.data) <= INLINE:
        yield {"type": kind, **plain(thing), place: _about(body) | _inline(body)}
    else:
        starts = range(0, len(body.data), _CHUNK)
        size = {"bytes": len(body.data), "sha256": sha256(body.data).hexdigest(), "chunks": len(starts)}
        yield {"type": kind, **plain(thing), place: _about(body) | size}
        for start in starts:
            yield {"type": "chunk", "base64": b64encode(body.data[start : start + _CHUNK]).decode()}


def _about(body: Body) -> Line:
    return {"codec": body.codec, **({"zip": True} if body.zipped else {})}


def _inline(body: Body) -> Line:
    try:
        return {"text": body.data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(body.data).decode()}


class Lines:
    """The lines of an export, checked one by one. Raises `ConfigError` with the line's number for what is not by the schema."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        """`lines`: each with its newline, and at most `LINE_MAX` + 1 bytes long."""
        self._lines = lines
        self._number = 0

    def things(self) -> Iterator[Thing]:
        """The things of the export; the counts and the digest of its last line are `end` then."""
        self._begin(self._next())
        while (line := self._next())["type"] != "end":
            yield self._thing(line)
        self.end = self._end(line)
        if next(self._lines, None) is not None:
            self._refuse("there is something after the end")

    def _next(self) -> Line:
        raw = next(self._lines, None)
        self._number += 1
        if raw is None:
            self._refuse("the export was cut short here: it has no line of type 'end'")
        if len(raw) > LINE_MAX:
            self._refuse(f"longer than {LINE_MAX:,} bytes")
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as exc:
            self._refuse(f"not JSON: {exc}")
        if not isinstance(line, dict) or not isinstance(line.get("type"), str):
            self._refuse("not an object with a 'type'")
        return line

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"line {self._number} of the export: {why}")

    def _begin(self, line: Line) -> None:
        if line["type"] != "begin":
            self._refuse("an export begins with a line of type 'begin'; this is something else")
        if line.get("version") != VERSION:
            self._refuse(f"version {line.get('version')!r} of the format; this durastore reads version {VERSION}")

    def _end(self, line: Line) -> Line:
        return self._checked(line, {"keys": int, "runs": int, "digest": str})

    def _thing(self, line: Line) -> Thing:
        if line["type"] not in ("record", "run"):
            self._refuse(f"a line of type {line['type']!r} has no place here")
        return self._record(line) if line["type"] == "record" else self._run(line)

    def _record(self, line: Line) -> MovedRecord:
        fields = self._checked(line, _RECORD, "result")
        self._check_names(key=fields["key"], run=fields["run_id"])
        if fields["state"] not in _STATES:
            self._refuse(f"'state' is one of {', '.join(_STATES)}, not {fields['state']!r}")
        stored = fields.pop("result")
        if fields["state"] != "committed" and (stored is not None or fields["retain_until"] is not None):
            self._refuse("only a committed record has a 'result' or ends its retention")
        record = StoredRecord(**fields, expires_at=None, result=None)
        return MovedRecord(record, self._body(stored, f"key {record.key!r}"))

    def _run(self, line: Line) -> MovedRun:
        fields = self._checked(line, _RUN, "state")
        self._check_names(run=fields["run_id"])
        stored = fields.pop("state")
        return MovedRun(StoredProgress(**fields, state=None), self._body(stored, f"run {fields['run_id']!r}"))

    def _check_names(self, *, run: str, key: str = "-") -> None:
        try:
            keys.checked(key)
            keys.checked(run, "run id")
        except DurastoreError as exc:
            self._refuse(str(exc))

    def _checked(self, line: Line, spec: dict[str, Any], payload: str | None = None) -> Line:
        """The fields of a line without its type: those of `spec`, all of them and no others, each of its type."""
        fields = {name: value for name, value in line.items() if name != "type"}
        expected = {*spec, *([] if payload is None else [payload])}
        for name in sorted(expected ^ set(fields)):
            self._refuse(f"{'lacks' if name in expected else 'has an unknown field'} {name!r}")
        for name, kinds in spec.items():
            self._check_type(name, fields[name], kinds if isinstance(kinds, tuple) else (kinds,))
        return fields

    def _check_type(self, name: str, value: Any, kinds: tuple[Any, ...]) -> None:
        fits = None in kinds if value is None else type(value) in kinds
        if not fits or (isinstance(value, int) and not 0 <= value <= _INTEGER_MAX):
            expected = " or ".join("null" if kind is None else "text" if kind is str else "a number" for kind in kinds)
            self._refuse(f"{name!r} is {expected}, and no number beyond 64 bits")

    def _body(self, stored: Any, name: str) -> Body | None:
        if stored is None:
            return None
        if not isinstance(stored, dict):
            self._refuse("a payload is an object or null")
        codec, zipped = stored.get("codec"), stored.get("zip", False)
        if codec is not None and not is_codec(codec):
            self._refuse(f"no name of a codec: {codec!r}")
        if type(zipped) is not bool:
            self._refuse("'zip' is true or false")
        rest = {field: value for field, value in stored.items() if field not in ("codec", "zip")}
        return Body(codec, self._data(rest, name), zipped=zipped)

    def _data(self, rest: Line, name: str) -> bytes:
        if set(rest) == {"text"}:
            self._check_type("text", rest["text"], (str,))
            return self._encoded(rest["text"])
        if set(rest) == {"base64"}:
            return self._decoded(rest["base64"])
        about = self._checked(rest, {"bytes": int, "sha256": str, "chunks": int})
        if about["bytes"] > PAYLOAD_BYTES_MAX + _SLACK:
            self._refuse(f"a payload of {about['bytes']:,} bytes; at most {PAYLOAD_BYTES_MAX:,} fit")
        return self._joined(about, name)

    def _joined(self, about: Line, name: str) -> bytes:
        parts: list[bytes] = []
        size = 0
        for _ in range(about["chunks"]):
            line = self._next()
            if line["type"] != "chunk":
                self._refuse(f"a chunk of {name} is missing here")
            parts.append(self._decoded(line.get("base64")))
            size += len(parts[-1])
            if size > about["bytes"]:
                self._refuse(f"the chunks of {name} hold more than they should")
        data = b"".join(parts)
        if len(data) != about["bytes"] or sha256(data).hexdigest() != about["sha256"]:
            raise PayloadError(f"line {self._number} of the export: the chunks of {name} are damaged")
        return data

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError:
            self._refuse("'text' holds half a character; such bytes stand in 'base64'")

    def _decoded(self, text: Any) -> bytes:
        try:
            return b64decode(text, validate=True)
        except (ValueError, TypeError):
            self._refuse("not base64")
