"""All clauses, read out of the docstrings that state them, so that none can be forgotten.

The contract's own stand in :mod:`durastore.contract`. The layers above single clauses are:

MODEL-1   Any program of calls gets the same answers, and leaves the same contents, as on ``memory://``.
RACE-1    Under several processes, the history of each key and run is linearizable.
RACE-2    Under several processes, a key has one committed result, tokens grow with each grant, and no two claims live at once.

Whichever request of a call is lost on the way, or its answer, or the connection with half of it; whether the store says
"unavailable" or "too much"; or, where there is no network, the process that asked dies before it is answered:

LOST-1    A claim is granted once, and whoever asked holds it: it is not locked out of its own key.
LOST-2    A takeover takes over once, and each answer to it says what was taken over.
LOST-3    A renewal that got lost is no lost claim.
LOST-4    A commit is a success, once, with its progress.
LOST-5    A fused commit lands once, and the next claim is its caller's, or free.
LOST-6    A claim is given back once, and the answer says so.
LOST-7    `load`, `save` and `place` answer what is stored; `incarnate` draws no number twice.
LOST-8    What an effect wrote through `transact` stands once, with the mark.
LOST-9    A record is resolved once, or is gone, and nothing else is.
LOST-10   A sweep removes what is due, and nothing else.
LOST-11   A whole run in which one request in six is disturbed has each effect once, and waits for no lease of its own.

OUTAGE-1  A store that is out of reach for longer than a lease costs nothing but time: a holder whom nobody replaced commits, and
          its run goes on by itself.

When the process is killed between any two calls of its store, or around any effect, and the run is resumed:

CRASH-1   Under ``rerun``, every effect happens; twice only the one during which the process died. Result and progress are one.
CRASH-2   Under ``halt``, no effect happens twice; a key in doubt runs for nobody until it is resolved.
CRASH-3   Under a probe, every effect happens exactly once; the probe is asked about keys in doubt alone.
CRASH-4   By ``transact``, every write of the application's happens exactly once, with its mark.

When a process stands still past its lease in any phase, is replaced, and goes on:

ZOMBIE-1  It changes neither result, nor progress, nor claim; it gets `ClaimLost`, and does no later step.
ZOMBIE-2  The same with its wall clock and its monotonic clock set back to when it stood still (a restored snapshot).

CLOCK-1   A client whose clock is an hour fast or slow, or jumps, takes over no live claim and holds no lapsed one, but for the
          store's margin. Where all clients share their machine's clock (`shares_clock`), it is wrong for all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache

from durastore import contract

__all__ = ["catalogue", "group_of", "references"]

_ID = r"[A-Z]+-\d+"
_DEFINITION = re.compile(rf"^({_ID})\s+(\S.*(?:\n(?!{_ID}\s)\S.*|\n(?!{_ID}\s)[ ]{{4,}}\S.*)*)", re.MULTILINE)


@cache
def catalogue() -> Mapping[str, str]:
    """Each clause's text by its id, in the order in which their groups are stated.

    Raises `RuntimeError` when Python runs without docstrings (``-OO``).
    """
    found = {name: text for doc in _docstrings() for name, text in _definitions(doc)}
    if not found:
        raise RuntimeError("the clauses are docstrings: run without -OO")
    groups = list(dict.fromkeys(map(group_of, found)))
    return dict(sorted(found.items(), key=lambda item: (groups.index(group_of(item[0])), _number(item[0]))))


def references() -> set[str]:
    """Every clause id that the docstrings mention."""
    return {name for doc in _docstrings() for name in re.findall(rf"\b{_ID}\b", doc)} - {"UTF-8"}


def group_of(clause: str) -> str:
    """The group of a clause: ``CLAIM`` of ``CLAIM-3``."""
    return clause.partition("-")[0]


def _number(clause: str) -> int:
    return int(clause.partition("-")[2])


def _docstrings() -> Iterator[str]:
    members = [getattr(contract.Backend, name) for name in vars(contract.Backend) if not name.startswith("_")]
    for owner in (contract, *filter(callable, members)):
        yield inspect.getdoc(owner) or ""
    yield inspect.cleandoc(__doc__ or "")


def _definitions(doc: str) -> Iterator[tuple[str, str]]:
    for name, text in _DEFINITION.findall(doc):
        yield name, " ".join(text.split())
