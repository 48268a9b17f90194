"""The suite's pytest plugin."""

from __future__ import annotations

import pytest


def register(config: pytest.Config) -> None:
    pass
