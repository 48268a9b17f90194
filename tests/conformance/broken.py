"""Backends broken on purpose for the soak: they wrap a real one in each of its processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from durastore.contract import Answer, ClaimRequest, Grant, Granted, Held
from durastore.errors import ClaimLost

__all__ = ["Forgetful", "Generous", "Unfenced", "Wrapper"]


class Wrapper:
    """A backend as it is."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Generous(Wrapper):
    """Grants what another holds."""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer: Answer = self._backend.claim(request, now=now)
        if not isinstance(answer, Held):
            return answer
        grant = Grant(request.key, request.run_id, request.owner, request.nonce, 1, answer.attempt, request.lease)
        return Granted(grant)


class Unfenced(Wrapper):
    """Tells a zombie that its commit was a success."""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        with suppress(ClaimLost):
            granted: Granted | None = self._backend.commit(grant, **rest)
            return granted
        return None


class Forgetful(Wrapper):
    """Takes over from who may have had the effect, and tells nobody; also where nobody may."""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer: Answer = self._backend.claim(replace(request, takeover=True), now=now)
        return Granted(answer.grant) if isinstance(answer, Granted) else answer
