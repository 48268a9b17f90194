"""``runs``, ``show``, ``claims`` and ``record``: looking, which never changes anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, get_args

import click

from durastore import keys
from durastore.cli.exits import Exit, complain, tell
from durastore.cli.options import as_json, example, on_store, to_look
from durastore.cli.printing import age, brief, fields, json_line, listing, moment
from durastore.contract import RecordState
from durastore.errors import PayloadError
from durastore.store import Store
from durastore.views import Progress, Record, progress_view

__all__ = ["claims", "record", "record_fields", "runs", "show"]

STATES: tuple[RecordState, ...] = get_args(RecordState)
STUCK_MAX = 20
"""Keys in doubt or claimed that `show` names."""


@click.command(epilog=example("durastore runs --url sqlite:///jobs.db"))
@on_store
@as_json
def runs(url: str | None, *, as_json: bool) -> None:
    """List the runs: how many steps are done, and when they last moved.

    With --json, one JSON document a line. In no promised order.
    """
    with to_look(url) as store:
        rows = (_run_row(run) for run in store.runs())
        _list(rows, ["run_id", "step", "updated_at", "incarnation"], as_json=as_json)


def _run_row(run: Progress) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "step": run.step,
        "updated_at": moment(run.updated_at),
        "incarnation": run.incarnation or None,
    }


@click.command(epilog=example("durastore show r1 --json"))
@click.argument("run_id", metavar="RUN")
@on_store
@as_json
def show(url: str | None, run_id: str, *, as_json: bool) -> None:
    """Show one run: its progress and state, how many of its keys are in which state, and those that are not done.

    Exit code 1 when there is neither progress nor a key of that run.
    """
    with to_look(url) as store:
        found = _overview(store, run_id)
    if found is None:
        complain(f"there is no run {run_id!r} in this store and namespace; `durastore runs` lists what there is")
        raise click.exceptions.Exit(Exit.FAILED)
    if as_json:
        json_line(found)
    else:
        _print_overview(found)


def _overview(store: Store, run_id: str) -> dict[str, Any] | None:
    stored = _progress(store, run_id)
    counts: Counter[str] = Counter()
    stuck: list[dict[str, Any]] = []
    for record in store.records(run_id=run_id):
        counts[record.state] += 1
        if record.state != "committed" and len(stuck) < STUCK_MAX:
            stuck.append(_claim_row(record))
    if stored is None and not counts:
        return None
    return {
        "run_id": run_id,
        "step": 0 if stored is None else stored.step,
        "updated_at": None if stored is None else moment(stored.updated_at),
        "incarnation": stored.incarnation or None if stored else None,
        **_value("state", stored),
        "keys": {state: counts[state] for state in STATES},
        "unfinished": stuck,
    }


def _progress(store: Store, run_id: str) -> Progress | None:
    stored = store.call("load", store.backend.load, keys.checked(run_id, "run id"))
    return None if stored is None else progress_view(stored, store.unpack)


def _print_overview(found: dict[str, Any]) -> None:
    counts = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in found["keys"].items() if count)
    fields(
        [
            ("run", found["run_id"]),
            ("step", found["step"]),
            ("state", brief(found["state"]) if "state" in found else f"({found['state_error']})"),
            ("updated", found["updated_at"]),
            ("incarnation", found["incarnation"]),
            ("keys", counts or "none"),
        ]
    )
    if found["unfinished"]:
        click.echo()
        listing(found["unfinished"], COLUMNS, as_json=False)


@click.command(epilog=example("durastore claims --in-doubt", "durastore claims --run r1 --state all --json"))
@click.option("--in-doubt", is_flag=True, help="Only keys in doubt.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice([*STATES, "all"]), help="Keys in this state. Repeatable."
)
@click.option("--run", "run_id", metavar="RUN", help="Only keys of this run.")
@click.option("--prefix", default="", metavar="TEXT", help="Only keys that begin so.")
@on_store
@as_json
def claims(
    url: str | None, states: tuple[str, ...], run_id: str | None, prefix: str, *, in_doubt: bool, as_json: bool
) -> None:
    """List keys that are claimed (somebody is at work) or in doubt (nobody knows whether the effect happened).

    --state lists keys in other states too. With --json, one JSON document a line. In no promised order.
    """
    if in_doubt and states:
        raise click.UsageError("--in-doubt and --state exclude each other")
    with to_look(url) as store:
        rows = map(_claim_row, _records(store, _wanted(states, in_doubt=in_doubt), run_id, prefix))
        _list(rows, COLUMNS, as_json=as_json)


def _list(rows: Iterable[dict[str, Any]], columns: list[str], *, as_json: bool) -> None:
    if not listing(rows, columns, as_json=as_json) and not as_json:
        tell("nothing found")


COLUMNS = ["key", "state", "run_id", "owner", "attempt", "token", "lease_left", "since", "error"]


def _wanted(states: tuple[str, ...], *, in_doubt: bool) -> list[RecordState | None]:
    if in_doubt:
        return ["in_doubt"]
    if "all" in states:
        return [None]
    return [state for state in STATES if state in states] or ["claimed", "in_doubt"]


def _records(store: Store, wanted: list[RecordState | None], run_id: str | None, prefix: str) -> Iterator[Record]:
    return chain.from_iterable(store.records(run_id=run_id, state=state, prefix=prefix) for state in wanted)


def _claim_row(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "state": record.state,
        "run_id": record.run_id,
        "owner": record.owner,
        "attempt": record.attempt,
        "token": record.token,
        "lease_left": None if record.lease_left is None else round(record.lease_left, 3),
        "since": moment(record.updated_at),
        "error": record.error,
    }


@click.command(epilog=example("durastore record charge:order-17 --json"))
@click.argument("key")
@on_store
@as_json
def record(url: str | None, key: str, *, as_json: bool) -> None:
    """Show one key: its state, who holds or held it, and its result.

    With --json the result is exact. Exit code 1 when there is no such key.
    """
    with to_look(url) as store:
        found = store.record(key)
        shown = None if found is None else record_fields(found)
    if shown is None:
        complain(f"there is no key {key!r} in this store and namespace; `durastore claims --state all` lists them")
        raise click.exceptions.Exit(Exit.FAILED)
    if as_json:
        json_line(shown)
    else:
        _print_record(shown)


def record_fields(found: Record) -> dict[str, Any]:
    """A record as JSON has it. `result` stands there only when the key is done and its result is whole."""
    return {
        **_claim_row(found),
        "created_at": moment(found.created_at),
        "updated_at": moment(found.updated_at),
        "lease": found.lease,
        "fingerprint": found.fingerprint,
        "retain_until": moment(found.retain_until),
        **(_value("result", found) if found.state == "committed" else {}),
    }


def _value(name: str, holder: Record | Progress | None) -> dict[str, Any]:
    try:
        return {name: {} if holder is None else getattr(holder, name)}
    except PayloadError as exc:
        return {f"{name}_error": str(exc)}


def _print_record(shown: dict[str, Any]) -> None:
    left = shown["lease_left"]
    fields(
        [
            *((name, shown[name]) for name in ("key", "state", "run_id", "owner", "attempt", "token")),
            ("created", shown["created_at"]),
            ("updated", shown["updated_at"]),
            ("lease left", None if left is None else age(left)),
            ("kept until", shown["retain_until"]),
            ("fingerprint", shown["fingerprint"]),
            ("error", shown["error"]),
            ("result", brief(shown["result"]) if "result" in shown else shown.get("result_error")),
        ]
    )
