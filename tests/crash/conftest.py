from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Path]:
    """A folder for hundreds of stores: in memory where that is possible, since SIGKILL does not ask what reached the disk."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="durastore-crash-", dir=MEMORY) as folder:
        yield Path(folder)
