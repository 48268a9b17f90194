"""``copy``, ``export`` and ``import``: a store's contents into another, or into a file and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

import click

from durastore import urls
from durastore.cli.exits import Exit, complain, tell
from durastore.cli.options import as_json, can_debug, chosen, duration, example, file_name, on_store
from durastore.cli.output import check_writable, destination
from durastore.cli.printing import fields, json_line
from durastore.codec import JSONCodec
from durastore.errors import ConfigError
from durastore.keys import content_key
from durastore.store import Store
from durastore.store import open as open_store

if TYPE_CHECKING:
    from durastore.moving import Refusal, Tally

__all__ = ["copy_store", "export_store", "import_store"]

JOURNAL = "durastore-moving"
"""The namespace at the destination in which a copy under way keeps its progress."""
_PROGRESS = 2.0
"""Seconds between two lines of progress."""
_NAMED = 20
"""Refusals that are named; more are only counted."""

wait_option = click.option(
    "--wait",
    default="0s",
    metavar="DURATION",
    help="How long to wait for claims that are alive. Default: refuse at once.",
)
dry_option = click.option("--dry-run", is_flag=True, help="Only look, and say what would be done.")


@click.command(
    "copy",
    epilog=example(
        "durastore copy --dry-run sqlite:///jobs.db firestore://PROJECT/DATABASE",
        "durastore copy --verify sqlite:///jobs.db firestore://PROJECT/DATABASE",
    ),
)
@click.argument("src")
@click.argument("dst")
@wait_option
@click.option("--verify", is_flag=True, help="Compare everything afterwards, results too.")
@dry_option
@click.option("--restart", is_flag=True, help="Begin anew, not where a copy that was killed had got to.")
@can_debug
@as_json
def copy_store(src: str, dst: str, wait: str, *, verify: bool, dry_run: bool, restart: bool, as_json: bool) -> None:
    """Copy all runs, keys, results, tokens and retention from the store SRC into the store DST.

    Both are URLs with their options. One namespace is copied at a time: that of SRC, into that of DST.

    Stop the workers first: claims that are alive are refused, or waited for. A claim that has lapsed arrives in doubt. What DST
    has already is never overwritten; where it is not the same, it is named, and the exit code is 1. After a crash, the same
    command goes on where it was, and compares everything at its end.
    """
    from durastore import moving

    seconds, report = duration(wait), _Reporter("copied")
    _check_different(src, dst)
    with _looked_at(src) as source, _target(dst, dry=dry_run) as target:
        if dry_run:
            tally = moving.look(source, target, wait=seconds, report=report)
            _finish(tally, report, as_json=as_json, dry_run=True)
            return
        with _journal(dst) as journal:
            name = _name(src, dst)
            if restart:
                journal.forget_run(name, force=True)
            tally, resumed = moving.copy(source, target, journal, name, wait=seconds, report=report)
        if (verify or resumed) and not tally.refused:
            _verify(source, target, tally, report, resumed=resumed, as_json=as_json)
            return
    _finish(tally, report, as_json=as_json, resumed=resumed)


def _verify(source: Store, target: Store, copied: Tally, report: _Reporter, *, resumed: bool, as_json: bool) -> None:
    from durastore import moving

    tally, there = moving.verify(source, target, report=_Reporter("compared"))
    shown = replace(copied, conflicts=tally.conflicts, damaged=tally.damaged)
    verified = there == tally.digest and not tally.refused
    if tally.refused and resumed:
        tell("this copy went on where an earlier one was killed; with --restart it begins anew")
    if not verified and not tally.refused:  # cannot be, unless something changed in between
        complain("the digests differ")
        shown = replace(shown, conflicts=1)
    _finish(shown, report, as_json=as_json, resumed=resumed, verified=verified, digest=tally.digest)


def _check_different(src: str, dst: str) -> None:
    if urls.parse(src) == urls.parse(dst):
        raise ConfigError("source and destination are the same store and namespace")


def _name(src: str, dst: str) -> str:
    """The same for the same copy from the same folder, so that it is found again. Says nothing of passwords."""
    stores = [
        f"{url.scheme}://{url.address} {url.namespace} {sorted(url.options.items())}"
        for url in map(urls.parse, (src, dst))
    ]
    return content_key(str(Path.cwd()), *stores, prefix="copy:")


def _looked_at(url: str) -> Store:
    """A store of which nothing is created or changed. Payloads are not decoded, so that no key of a codec is needed."""
    parsed = replace(urls.parse(url), create=False)
    return Store(urls.connect(parsed), codec=JSONCodec(), url=str(parsed))


def _target(url: str, *, dry: bool) -> Store:
    return _looked_at(url) if dry else open_store(url, codec=JSONCodec())


def _journal(url: str) -> Store:
    parsed = urls.parse(url)
    return Store(urls.connect(replace(parsed, namespace=JOURNAL)), codec=JSONCodec(), url=str(parsed))


@click.command("export", epilog=example("durastore export --url sqlite:///jobs.db -o jobs.ndjson"))
@click.option(
    "-o",
    "--output",
    default="-",
    type=file_name,
    metavar="FILE",
    help="Default: stdout. A file appears whole or not at all.",
)
@wait_option
@click.option("--schema", is_flag=True, help="Write the JSON Schema of the lines instead.")
@on_store
@as_json
def export_store(url: str | None, output: str, wait: str, *, schema: bool, as_json: bool) -> None:
    """Write all runs, keys and results as JSON lines, which `durastore import` puts into any store.

    Results stand there as their codec wrote them: JSON as text, encrypted ones encrypted. Claims that are alive are refused, or
    waited for. With --json, the counts are written as JSON, to stderr if the export goes to stdout.
    """
    from durastore import moving

    if schema:
        click.echo(moving.schema(), nl=False)
        return
    check_writable(output)
    report = _Reporter("exported")
    given = chosen(url)
    with _looked_at(given) as source, destination(output) as write:
        namespace = urls.parse(given).namespace
        tally = moving.exported(source, write, namespace=namespace, wait=duration(wait), report=report)
    _finish(tally, report, as_json=as_json, to_stderr=output == "-")


@click.command("import", epilog=example("durastore import --url postgresql://user@host/db jobs.ndjson"))
@click.argument("file", type=file_name, metavar="FILE")
@dry_option
@on_store
@as_json
def import_store(url: str | None, file: str, *, dry_run: bool, as_json: bool) -> None:
    """Put what was exported to FILE (- for stdin) into a store.

    A file is checked as a whole first; from stdin, what came before a bad line stays. What the store has already is never
    overwritten; where it is not the same, it is named, and the exit code is 1. Again with the same file does nothing.
    """
    from durastore import moving

    report = _Reporter("imported")
    with _opened(file) as stream, _target(chosen(url), dry=dry_run) as target:
        if stream.seekable():
            moving.checked(_lines(stream))
            stream.seek(0)
        tally = moving.imported(_lines(stream), target, absent="count" if dry_run else "place", report=report)
    _finish(tally, report, as_json=as_json, dry_run=dry_run)


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
    else:
        with Path(file).open("rb") as stream:
            yield stream


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines, of which one that is too long is cut, and refused then."""
    from durastore.moving.ndjson import LINE_MAX

    return iter(partial(stream.readline, LINE_MAX + 1), b"")


class _Reporter:
    """Says on stderr how far it is, now and then, and what is refused, at once."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._began = self._told = monotonic()
        self._refused = 0

    def __call__(self, tally: Tally, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._refuse(refusal)
        elif monotonic() - self._told >= _PROGRESS:
            self._told = monotonic()
            tell(f"{self._done} {self.things(tally)}, {(tally.keys + tally.runs) / self.seconds:,.0f} a second")

    def _refuse(self, refusal: Refusal) -> None:
        self._refused += 1
        if self._refused <= _NAMED:
            complain(f"{refusal.name}: {refusal.reason}")
        elif self._refused == _NAMED + 1:
            complain("more are refused; they are counted, not named")

    @property
    def seconds(self) -> float:
        """Since it began."""
        return max(monotonic() - self._began, 0.001)

    @staticmethod
    def things(tally: Tally) -> str:
        """How many, for people."""
        return f"{tally.keys:,} keys and {tally.runs:,} runs"


def _finish(tally: Tally, report: _Reporter, *, as_json: bool, to_stderr: bool = False, **more: Any) -> None:
    """The counts, and the exit code: 1 when something was refused."""
    shown = {**tally.as_json(), "seconds": round(report.seconds, 3), **more}
    if as_json and not to_stderr:
        json_line(shown)
    elif as_json:
        click.echo(_json(shown), err=True)
    elif to_stderr:
        tell(f"exported {report.things(tally)}, digest {tally.digest[:16]}…")
    else:
        _for_people(shown)
    if tally.refused:
        raise click.exceptions.Exit(Exit.FAILED)


def _json(shown: dict[str, Any]) -> str:
    import json

    return json.dumps(shown)


def _for_people(shown: dict[str, Any]) -> None:
    names = {"placed": "would be new" if shown.get("dry_run") else "new", "same": "there already, the same"}
    counts = [(names.get(name, name), value) for name, value in shown.items() if name != "dry_run"]
    fields([(name.replace("_", " "), value) for name, value in counts if value is not False or name == "verified"])
