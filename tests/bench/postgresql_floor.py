"""``python -m tests.bench.postgresql_floor URL``: what each verb of the PostgreSQL backend costs, in floors, and where it goes.

A floor is one autocommit insert by raw psycopg. All kinds are sampled in blocks of 25, interleaved, in one process and one thread.
"Raw" is the backend's own statement sent by raw psycopg: what remains between the two is the pool and Python.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from durastore import urls
from durastore.contract import ClaimRequest, Grant, Granted, Payload, StoredProgress
from durastore_cloudsql.postgresql import PostgreSQLBackend

from .floors import floor

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
    write, read, close = floor(url)
    backend = urls.connect(urls.parse(url, {"namespace": f"bench-{time.time_ns()}"}))
    assert isinstance(backend, PostgreSQLBackend)
    backend.setup()
    kinds = {"floor": _alone(write), "raw read": _alone(read), **_verbs(backend), **_raw(url, backend)}
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for kind in kinds.values():  # the first block warms up
        _block(kind)
    for _ in range(0, steps, BLOCK):
        for name, kind in kinds.items():
            samples[name] += _block(kind)
    backend.close()
    close()
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


def _verbs(backend: PostgreSQLBackend) -> dict[str, Timed]:
    numbers = count()

    def asked() -> ClaimRequest:
        number = next(numbers)
        return ClaimRequest(f"key-{number}", "run", "bench", f"nonce-{number}", LEASE)

    def granted() -> Grant:
        answer = backend.claim(asked())
        assert isinstance(answer, Granted)
        return answer.grant

    def claims() -> Timed:
        while True:
            request = asked()
            yield lambda: backend.claim(request)  # noqa: B023  called before the next one

    def commits() -> Timed:
        while True:
            grant = granted()
            yield lambda: backend.commit(grant, result=RESULT)  # noqa: B023

    def both() -> Timed:
        while True:
            yield lambda: backend.commit(granted(), result=RESULT)

    def fused() -> Timed:
        grant = granted()
        for step in count(1):
            then, progress = asked(), StoredProgress("run", step, RESULT)
            answers: list[Granted | None] = []
            yield lambda: answers.append(backend.commit(grant, result=RESULT, progress=progress, then=then))  # noqa: B023
            assert answers[0] is not None
            grant = answers[0].grant

    done = asked()
    answer = backend.claim(done)
    assert isinstance(answer, Granted)
    backend.commit(answer.grant, result=RESULT)
    return {
        "claim, granted": claims(),
        "claim, committed": _alone(lambda: backend.claim(done)),
        "commit": commits(),
        "claim and commit": both(),
        "commit, progress, then": fused(),
    }


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
            yield lambda: connection.execute(statement, values).fetchall()  # noqa: B023

    return {"raw claim, granted": claims("raw-{}"), "raw claim, held": claims("raw-0")}


if __name__ == "__main__":
    main()
