"""One namespace of one database: read, decide, write what was decided if nothing changed since, else again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from durastore_firestore.chunks import Chunks
from durastore_firestore.documents import Names
from durastore_firestore.draft import Draft
from durastore_firestore.effects import EffectBatch, refused
from durastore_firestore.rpc import Rpc, is_stale
from durastore_firestore.target import Target

__all__ = ["Space"]

T = TypeVar("T")
_CONTENTION = 8.0
"""Seconds that a verb goes on reading and deciding anew while rivals write the same documents."""
_PAUSE_FIRST, _PAUSE_MAX = 0.002, 0.25
"""Seconds, at most, before deciding anew; doubled each time."""


class Space:
    """Where a store's documents are, and the way to write them after a look. Thread-safe."""

    def __init__(self, target: Target, interceptors: Sequence[Any]) -> None:
        self.target = target
        self.rpc = Rpc(target, interceptors)
        self.names = Names(target.path, target.collection, target.namespace)
        self.chunks = Chunks(self.rpc, self.names)

    def draft(self, keys: Sequence[str], runs: Sequence[str], now: int | None) -> Draft:
        """Read these records and runs."""
        names = [*(self.names.record(key) for key in keys), *(self.names.run(run_id) for run_id in runs)]
        return Draft(self.rpc.get(names), keys, runs, self.names, now)

    def decide(
        self,
        decide: Callable[[Draft], T],
        *,
        keys: Sequence[str] = (),
        runs: Sequence[str] = (),
        now: int | None = None,
        batch: EffectBatch | None = None,
    ) -> tuple[T, Draft]:
        """Read, decide, and write what was decided if nothing changed since; else again, with what there is now.

        `batch` goes into the same commit; a condition of its own that fails is raised as the official client raises it.
        """
        give_up = time.monotonic() + _CONTENTION
        pause = _PAUSE_FIRST
        while True:
            draft = self.draft(keys, runs, now)
            answer = decide(draft)
            writes = draft.writes(self.chunks, self.rpc.clock)
            try:
                if writes:
                    beside = [] if batch is None else batch.writes
                    draft.written(self.rpc.commit([*writes, *beside], large=bool(beside)))
            except grpc.RpcError as error:
                if not is_stale(error) or time.monotonic() > give_up:
                    raise
                if batch is not None and self._is_refused(error, draft, keys, runs):
                    raise refused(error) from error
            else:
                return answer, draft
            time.sleep(random.uniform(0, pause))  # noqa: S311  jitter
            pause = min(2 * pause, _PAUSE_MAX)

    def _is_refused(self, error: grpc.RpcError, draft: Draft, keys: Sequence[str], runs: Sequence[str]) -> bool:
        """Whether our documents are as they were, so that it was a condition of the effect's own that failed."""
        if error.code() is grpc.StatusCode.ABORTED:
            return False
        return draft.versions() == self.draft(keys, runs, None).versions()
