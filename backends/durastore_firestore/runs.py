"""Progress and incarnations. What this process saw last saves the read before the next write."""

from __future__ import annotations

from dataclasses import replace

from durastore import rules
from durastore.contract import Payload, StoredProgress
from durastore_firestore import wire
from durastore_firestore.documents import Run, run_fields
from durastore_firestore.draft import Draft, blob_of
from durastore_firestore.memo import Memo
from durastore_firestore.space import Space
from durastore_firestore.wire import Message

__all__ = ["Runs"]


class Runs:
    """The runs of one namespace. Thread-safe."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seen: Memo[Run] = Memo()

    def load(self, run_id: str) -> StoredProgress | None:
        """As in the contract."""
        draft = self._space.draft([], [run_id], None)
        self.remember(draft)
        return draft.run(run_id)

    def save(self, progress: StoredProgress, now: int | None) -> StoredProgress:
        """As in the contract: one RPC when the run is as we last saw it."""
        writes = self.save_writes(progress, now)
        times = None if writes is None else self._space.rpc.attempt(writes)
        if times is not None:
            return self.saved(progress, times[0], now)

        def decide(draft: Draft) -> None:
            draft.advance(rules.advance(draft.run(progress.run_id), progress, draft.now))

        _, draft = self._space.decide(decide, runs=[progress.run_id], now=now)
        self.remember(draft)
        return draft.runs()[progress.run_id].progress

    def save_writes(self, progress: StoredProgress, now: int | None) -> list[Message] | None:
        """What saves the progress if the run is as we last saw it, its own document first; None when it has to be read first."""
        known = self._seen.get(progress.run_id)
        if known is None or known.progress.step > progress.step:
            return None
        fields = run_fields(replace(progress, incarnation=known.progress.incarnation), now=now)
        write = wire.replace(self._space.names.run(progress.run_id), fields, known.version)
        return [write, *self._space.chunks.follow(blob_of(known.progress.state), blob_of(progress.state), None)]

    def saved(self, progress: StoredProgress, version: int, now: int | None) -> StoredProgress:
        """Note that `save_writes` landed; what is stored now."""
        known = self._seen.get(progress.run_id)
        incarnation = 0 if known is None else known.progress.incarnation
        stored = replace(progress, incarnation=incarnation, updated_at=version if now is None else now)
        self._remember(Run(stored, version))
        return stored

    def incarnate(self, run_id: str, now: int | None) -> int:
        """As in the contract."""

        def decide(draft: Draft) -> None:
            draft.draw(rules.next_incarnation(draft.run(run_id), run_id, draft.now))

        _, draft = self._space.decide(decide, runs=[run_id], now=now)
        self.remember(draft)
        return draft.runs()[run_id].progress.incarnation

    def place(self, run: StoredProgress) -> StoredProgress:
        """As in the contract."""

        def decide(draft: Draft) -> StoredProgress:
            known = draft.run(run.run_id)
            if known is None:
                draft.place_run(run)
            return known or run

        stands, draft = self._space.decide(decide, runs=[run.run_id])
        self.remember(draft)
        return stands

    def delete(self, run_id: str) -> bool:
        """As in the contract."""

        def decide(draft: Draft) -> bool:
            if draft.run(run_id) is None:
                return False
            draft.drop_run(run_id)
            return True

        deleted, draft = self._space.decide(decide, runs=[run_id])
        self.remember(draft)
        return deleted

    def remember(self, draft: Draft) -> None:
        """Note the runs of a draft that was read, or carried out."""
        for run in draft.runs().values():
            self._remember(run)

    def _remember(self, run: Run) -> None:
        """Without the bytes of the state."""
        state = run.progress.state
        if state is not None:
            run = replace(run, progress=replace(run.progress, state=Payload(b"", state.blob)))
        self._seen.put(run.progress.run_id, run)
