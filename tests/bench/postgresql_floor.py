"""``python -m tests.bench.postgresql_floor URL``: what each verb of the PostgreSQL backend costs, in floors.

A floor is one autocommit insert by raw psycopg. All kinds are sampled in blocks of 25, interleaved, in one process and thread.
"Raw" is the backend's own statement sent by raw psycopg: what remains between the two is the pool and Python.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from durastore import urls
from durastore.bench.floors import floor, new_table
from durastore.contract import ClaimRequest, Grant, Granted, Payload, StoredProgress
from durastore_cloudsql.postgresql import PostgreSQLBackend

BLOCK = 25
LEASE = 60_000_000
RESULT = Payload(b'json\n{"ok":true}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--steps", type=int, default=1050, help="samples of each kind")
    options = parser.parse_args()
    medians = measure(options.url, options.steps)
    unit = medians["floor"]
    print(f"{'':28}{'median µs':>10}{'floors':>8}")
    for name, median in medians.items():
        print(f"{name:28}{median * 1e6:10.0f}{median / unit:8.2f}")


def measure(url: str, steps: int) -> dict[str, float]:
    """The median of each kind in seconds, `floor` first."""
    raw = floor(url, new_table())
    backend = urls.connect(urls.parse(url, {"namespace": f"bench-{time.time_ns()}"}))
    assert isinstance(backend, PostgreSQLBackend)
    backend.setup()
    kinds = {"floor": _alone(raw.write), "raw read": _alone(raw.read), **_verbs(backend), **_raw(url, backend)}
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for kind in kinds.values():  # the first block warms up
        _block(kind)
    for _ in range(0, steps, BLOCK):
        for name, kind in kinds.items():
            samples[name] += _block(kind)
    backend.close()
    raw.close()
    return {name: statistics.median(values) for name, values in samples.items()}


Timed = Iterator[Callable[[], Any]]
"""What to time next; what it prepares first is not timed."""


def _block(kind: Timed) -> list[float]:
    block = []
    for _ in range(BLOCK):
        call = next(kind)
        began = time.perf_counter()
        call()
        block.append(time.perf_counter() - began)
    return block


def _alone(call: Callable[[], Any]) -> Timed:
    while True:
        yield call


class _Asking:
    """Requests for keys that nobody has asked for."""

    def __init__(self, backend: PostgreSQLBackend) -> None:
        self._backend = backend
        self._numbers = count()

    def new(self) -> ClaimRequest:
        number = next(self._numbers)
        return ClaimRequest(f"key-{number}", "run", "bench", f"nonce-{number}", LEASE)

    def granted(self) -> Grant:
        answer = self._backend.claim(self.new())
        assert isinstance(answer, Granted)
        return answer.grant


def _verbs(backend: PostgreSQLBackend) -> dict[str, Timed]:
    asking = _Asking(backend)
    done = asking.new()
    answer = backend.claim(done)
    assert isinstance(answer, Granted)
    backend.commit(answer.grant, result=RESULT)
    return {
        "claim, granted": _claims(backend, asking),
        "claim, committed": _alone(lambda: backend.claim(done)),
        "commit": _commits(backend, asking),
        "claim and commit": _alone(lambda: backend.commit(asking.granted(), result=RESULT)),
        "commit, progress, then": _fused(backend, asking),
    }


def _claims(backend: PostgreSQLBackend, asking: _Asking) -> Timed:
    while True:
        yield partial(backend.claim, asking.new())


def _commits(backend: PostgreSQLBackend, asking: _Asking) -> Timed:
    while True:
        yield partial(backend.commit, asking.granted(), result=RESULT)


def _fused(backend: PostgreSQLBackend, asking: _Asking) -> Timed:
    grant = asking.granted()
    for step in count(1):
        progress, then = StoredProgress("run", step, RESULT), asking.new()
        yield partial(backend.commit, grant, result=RESULT, progress=progress, then=then)
        answer = backend.claim(then)  # the same nonce again: the claim that the commit made
        assert isinstance(answer, Granted)
        grant = answer.grant


def _raw(url: str, backend: PostgreSQLBackend) -> dict[str, Timed]:
    """The backend's claim, sent by raw psycopg."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    statement, numbers = backend._sql["claim"], count()

    def claims(key: str) -> Timed:
        while True:
            number = next(numbers)
            values = {
                "namespace": backend._namespace,
                "key": key.format(number),
                "run_id": "run",
                "owner": "bench",
                "nonce": f"raw-{number}",
                "lease": LEASE,
                "takeover": True,
                "fingerprint": None,
                "incarnation": 0,
                "now": None,
            }
            yield partial(_fetch, connection, statement, values)

    return {"raw claim, granted": claims("raw-{}"), "raw claim, held": claims("raw-0")}


def _fetch(connection: Any, statement: str, values: dict[str, Any]) -> Any:
    return connection.execute(statement, values).fetchall()


if __name__ == "__main__":
    main()
