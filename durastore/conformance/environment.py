"""What the suite's own processes inherit."""

from __future__ import annotations

import os
import sys

__all__ = ["inherited"]


def inherited() -> dict[str, str]:
    """The environment of this process, and what it can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
