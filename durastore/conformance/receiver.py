"""The outside world of a soak: what arrives is counted there, and whoever comes with an older token than was seen is refused."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

__all__ = ["Box", "Fenced", "Receiver"]


class Fenced(Exception):
    """The receiver has seen a later token."""


@dataclass
class Box:
    """What arrived for one key."""

    highest: int = 0
    tokens: list[int] = field(default_factory=list)
    """Of each delivery, in order."""


class Receiver:
    """One file for each key, in a folder, under a lock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def deliver(self, key: str, token: int, *, fence: bool) -> None:
        """Count a delivery. Raises `Fenced`, if told to fence."""
        with self._opened(key) as box:
            if fence and token < box.highest:
                raise Fenced(f"{key}: {token} after {box.highest}")
            box.highest = max(box.highest, token)
            box.tokens.append(token)

    def asked(self, key: str, token: int) -> bool:
        """Whether anything arrived; whoever asks has a token too, and shuts out those before it."""
        with self._opened(key) as box:
            box.highest = max(box.highest, token)
            return bool(box.tokens)

    def box(self, key: str) -> Box:
        """What arrived by now."""
        with self._opened(key) as box:
            return box

    @contextmanager
    def _opened(self, key: str) -> Iterator[Box]:
        path = self._folder / sha256(key.encode()).hexdigest()
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            box = Box(**json.loads(text)) if text else Box()
            yield box
            if box.tokens or box.highest:
                file.truncate(0)
                file.write(json.dumps(asdict(box)))
                file.flush()
