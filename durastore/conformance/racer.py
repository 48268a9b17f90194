"""One of several that race: a random program on a few keys by the store's own clock, each call noted.

Run as ``python -m durastore.conformance.racer``: a job as a line of JSON on standard input, then for each round ``ready`` out and
``go`` in, at the end the history, pickled, in base64.
"""

from __future__ import annotations

import base64
import json
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from durastore import urls
from durastore.conformance.client import nonce
from durastore.conformance.history import UNKNOWN, Event
from durastore.contract import Backend, ClaimRequest, Grant, Granted, Payload, StoredProgress, StoredRecord
from durastore.errors import ClaimLost, StoreUnavailable

__all__ = ["NEVER", "Fused", "Job", "Racer", "main"]

LEASES = (0, 5_000, 30_000, 200_000, 10_000_000)
"""Microseconds."""
NEVER = 1 << 62
"""When a call was answered that nobody heard of again."""
_PAUSE_SECONDS_MAX = 0.003


@dataclass(frozen=True, slots=True)
class Job:
    """What one process is to do."""

    process: int
    seed: int
    rounds: int
    calls: int
    """Per round."""
    settling: bool
    """Whether records are resolved and forgotten, too."""


@dataclass(frozen=True, slots=True)
class Fused:
    """What a commit does besides."""

    saved: StoredProgress
    then: ClaimRequest | None

    def events(self, commit: Event, answer: Granted | None) -> Iterator[Event]:
        """As events of their own over the same time."""
        if commit.answer is False:
            return
        unknown = UNKNOWN if not commit.certain else None
        yield replace(commit, name=f"run {self.saved.run_id}", verb="save", given=self.saved, answer=unknown)
        if self.then is not None:
            noted = unknown or plain(answer)
            yield replace(commit, name=f"key {self.then.key}", verb="then", given=self.then, answer=noted)


@dataclass(slots=True)
class Racer:
    """A client that acts at random and notes what it did."""

    backend: Backend
    job: Job
    events: list[Event] = field(default_factory=list)
    started: Callable[[Event, Fused | None], None] = lambda *_: None
    """Told of each call before it is made, for whoever may not live to hear its answer."""
    _grants: list[Grant] = field(default_factory=list)
    _seen: list[StoredRecord] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.job.seed} {self.job.process}")  # noqa: S311  a program, not a secret

    def round(self, number: int) -> None:
        """One round on keys and a run of its own."""
        self._grants.clear()
        self._seen.clear()
        for _ in range(self.job.calls):
            self.act(number)
            time.sleep(self._random.uniform(0, _PAUSE_SECONDS_MAX))

    def act(self, number: int) -> None:
        """One call in a round."""
        names = [f"round {number} key {letter}" for letter in "ab"]
        acts: list[Callable[[str, str], None]] = [self._claim, self._claim, self._claim, self._commit, self._commit]
        acts += [self._renew, self._abandon, self._read, self._run]
        acts += [self._settle] if self.job.settling else []
        self._random.choice(acts)(self._random.choice(names), f"round {number} run")

    def _note(
        self,
        name: str,
        verb: str,
        given: Any,
        call: Callable[[], Any],
        *,
        shown: Callable[[Any], Any],
        fused: Fused | None = None,
    ) -> Any:
        """Call, and note the answer. A passing failure leaves the outcome unknown, and is answered by None."""
        invoked = time.monotonic_ns()
        self.started(Event(self.job.process, name, verb, given, UNKNOWN, invoked, NEVER, certain=False), fused)
        certain = True
        try:
            answer = call()
            noted = shown(answer)
        except ClaimLost:
            answer, noted = None, False
        except Exception as exc:
            if not isinstance(self.backend.classify(exc), StoreUnavailable):
                raise
            answer, noted, certain = None, UNKNOWN, False
        self.events.append(Event(self.job.process, name, verb, given, noted, invoked, time.monotonic_ns(), certain))
        return answer

    def _request(self, key: str, run: str) -> ClaimRequest:
        lease = self._random.choice(LEASES)
        owner = f"process {self.job.process}"
        return ClaimRequest(key, run, owner, nonce(), lease, takeover=self._random.random() < 0.8)

    def _claim(self, key: str, run: str) -> None:
        asked = self._request(key, run)
        answer = self._note(f"key {key}", "claim", asked, lambda: self.backend.claim(asked), shown=plain)
        if isinstance(answer, Granted):
            self._grants.append(answer.grant)

    def _renew(self, key: str, run: str) -> None:  # noqa: ARG002  as its siblings
        if self._grants:
            grant = self._random.choice(self._grants)
            shown = plain(grant)
            self._note(f"key {grant.key}", "renew", shown, lambda: self.backend.renew([grant])[0], shown=bool)

    def _commit(self, key: str, run: str) -> None:
        if not self._grants:
            return
        grant = self._grants.pop(self._random.randrange(len(self._grants)))
        then = self._request(key, run) if key != grant.key and self._random.random() < 0.5 else None
        data = f"{self.job.process} {grant.nonce}".encode()
        saved = StoredProgress(run, self._random.randrange(9), Payload(data))
        given, fused = (plain(grant), data), Fused(saved, then)
        first = len(self.events)
        answer = self._note(
            f"key {grant.key}",
            "commit",
            given,
            lambda: self.backend.commit(grant, result=Payload(data), progress=saved, then=then),
            shown=lambda _: True,
            fused=fused,
        )
        self.events += fused.events(self.events[first], answer)
        if answer is not None:
            self._grants.append(answer.grant)

    def _abandon(self, key: str, run: str) -> None:  # noqa: ARG002  as its siblings
        if not self._grants:
            return
        grant = self._grants.pop(self._random.randrange(len(self._grants)))
        error, in_doubt = self._random.choice((None, "boom")), self._random.random() < 0.5
        self._note(
            f"key {grant.key}",
            "abandon",
            (plain(grant), error, in_doubt),
            lambda: self.backend.abandon(grant, error=error, in_doubt=in_doubt),
            shown=bool,
        )

    def _read(self, key: str, run: str) -> None:  # noqa: ARG002  as its siblings
        found = self._note(f"key {key}", "read", None, lambda: self.backend.read([key])[0], shown=plain)
        if found is not None:
            self._seen.append(found)

    def _settle(self, key: str, run: str) -> None:  # noqa: ARG002  as its siblings
        if not self._seen:
            return
        seen, new = self._seen.pop(), nonce()
        given = (plain(seen), new)
        if self._random.random() < 0.5:
            self._note(f"key {seen.key}", "delete", given, lambda: self.backend.delete(seen), shown=bool)
        else:
            call = lambda: self.backend.resolve(seen, nonce=new, result=None)  # noqa: E731  a name for the call
            self._note(f"key {seen.key}", "resolve", given, call, shown=bool)

    def _run(self, key: str, run: str) -> None:  # noqa: ARG002  as its siblings
        saved = StoredProgress(run, self._random.randrange(9), Payload(nonce().encode()))
        kind = self._random.choice(("save", "load", "incarnate"))
        call: Callable[[], Any] = {
            "save": lambda: self.backend.save(saved),
            "load": lambda: self.backend.load(run),
            "incarnate": lambda: self.backend.incarnate(run),
        }[kind]
        self._note(f"run {run}", kind, saved if kind == "save" else run, call, shown=plain)


def plain(answer: Any) -> Any:
    """Without a backend's own `version`, which other processes can't read."""
    if isinstance(answer, Granted):
        return replace(answer, grant=replace(answer.grant, version=None))
    return replace(answer, version=None) if isinstance(answer, (Grant, StoredRecord)) else answer


def command(job: Job, url: str) -> str:
    """The line that starts a job."""
    return json.dumps({"url": url, **asdict(job)}) + "\n"


def main() -> None:
    """Race as a process of its own."""
    given = json.loads(sys.stdin.readline())
    racer = Racer(urls.connect(urls.parse(given.pop("url"))), Job(**given))
    for number in range(racer.job.rounds):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        racer.round(number)
    racer.backend.close()
    sys.stdout.write(base64.b64encode(pickle.dumps(racer.events)).decode() + "\n")


if __name__ == "__main__":
    main()
