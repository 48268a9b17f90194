"""How the conformance suite writes application data through `FolderBackend.transact`."""

from __future__ import annotations

from typing import Any

__all__ = ["FolderUserData"]


class FolderUserData:
    """A `durastore.conformance.UserData`: `tx` is a dictionary."""

    def prepare(self, backend: Any) -> None:
        """A dictionary needs nothing."""

    def write(self, tx: Any, name: str, value: str) -> None:
        tx[name] = value

    def read(self, backend: Any, name: str) -> str | None:
        found: str | None = backend.user_data().get(name)
        return found

    def clear(self, backend: Any) -> None:
        """It is in the test's own namespace, which goes as a whole."""
