"""`copy`: page after page, each a side effect of a durable run, so that a copy that was killed goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from durastore.checkpoint import Checkpoint
from durastore.moving.arriving import Arrivals, Arriving
from durastore.moving.leaving import Departures, Leaving
from durastore.moving.tally import Report, Tally
from durastore.store import Store, new_nonce

__all__ = ["copy", "look", "verify"]

_LEASE = 30.0
"""Seconds that a page's claim outlives a copy that was killed; the next copy does not wait for it, it supersedes."""
_RETAIN = 30 * 86400.0
"""Seconds that the results of pages are kept, if they are not removed at the copy's end."""


def copy(source: Store, target: Store, journal: Store, name: str, *, wait: float, report: Report) -> tuple[Tally, bool]:
    """Copy all records and runs; the counts, and whether it went on from an earlier copy that did not end.

    `journal` is where the copy keeps its own progress, under the run id `name`, until it has ended. `wait`: seconds for which
    live claims of the source are waited for. Raises `AwaitTimeout` when some are live then, `ClaimLost` when another copy of
    the same name began, and what store calls raise. What was copied by then stays, and copying again goes on.
    """
    departures = Departures(source, wait=wait)
    departures.await_quiet()
    ckpt = journal.checkpoint(name, lease=_LEASE, retain=_RETAIN, supersede=True)
    step, state = ckpt.load()
    resumed = step > 0
    state = state or _begun(ckpt)
    tally = Tally.of_json(state["tally"])
    arrivals = Arrivals(target, lambda refusal: report(tally, refusal))
    while state["next"] is not None:
        moved = _page(ckpt, f"{name}:{state['id']}:{step}", state["next"], departures, arrivals)
        tally.add(Tally.of_json(moved["tally"]))
        step, state = step + 1, {**state, "next": moved["next"], "tally": tally.as_json()}
        ckpt.save_progress(step, state)
        report(tally, None)
    journal.forget_run(name, force=True)
    return tally, resumed


def _begun(ckpt: Checkpoint) -> dict[str, Any]:
    """The state of a new copy. Its pages have names of their own: what is left of an earlier copy is not taken for them."""
    state = {"id": new_nonce(), "next": ["records", None], "tally": Tally().as_json()}
    ckpt.save_progress(0, state)
    return state


def _page(ckpt: Checkpoint, key: str, what: list[Any], departures: Departures, arrivals: Arrivals) -> dict[str, Any]:
    """Copy one page, once. Placing it again would do no harm, so one that was interrupted is just done again."""

    def effect() -> dict[str, Any]:
        kind, cursor = what
        things, cursor = departures.records(cursor) if kind == "records" else departures.runs(cursor)
        tally = arrivals.take(_arriving(departures, things))
        following = [kind, cursor] if cursor is not None else ["runs", None] if kind == "records" else None
        return {"next": following, "tally": tally.as_json()}

    return ckpt.run_once(key, effect).value


def _arriving(departures: Departures, things: Sequence[Leaving]) -> list[Arriving]:
    return [Arriving(one.thing, partial(departures.with_body, one)) for one in things]


def look(source: Store, target: Store, *, wait: float = 0.0, report: Report) -> Tally:
    """What a copy would do, without doing it. Raises as `copy` does for live claims."""
    return _compared(Departures(source, wait=wait), target, "count", report)[0]


def verify(source: Store, target: Store, *, wait: float = 0.0, report: Report) -> tuple[Tally, str]:
    """Compare everything of the source with what the destination has under the same names.

    The counts (what is missing at the destination is a conflict), and the digest of what the destination has: the source's own,
    if nothing is missing or differs. Raises as `copy` does for live claims.
    """
    tally, arrivals = _compared(Departures(source, wait=wait), target, "refuse", report)
    return tally, arrivals.there.digest


def _compared(
    departures: Departures, target: Store, absent: Literal["count", "refuse"], report: Report
) -> tuple[Tally, Arrivals]:
    departures.await_quiet()
    tally = Tally()
    arrivals = Arrivals(target, lambda refusal: report(tally, refusal), absent=absent)
    for things in departures.all():
        tally.add(arrivals.take(_arriving(departures, things)))
        report(tally, None)
    return tally, arrivals
