"""Which versions a report is about."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

import durastore
from durastore.contract import Backend
from durastore.urls import GROUP

__all__ = ["versions"]


def versions(backend: Backend) -> Mapping[str, str]:
    """Of durastore, of the backend's package, of Python; and what the store says about itself."""
    kind = type(backend)
    found = {
        "durastore": durastore.__version__,
        "backend": f"{kind.__module__}.{kind.__qualname__} ({_distribution(kind.__module__.partition('.')[0])})",
        "python": f"{platform.python_version()} on {platform.system()}",
    }
    return found | {f"store's {finding.name}": finding.detail for finding in backend.check()}


@cache
def _distribution(package: str) -> str:
    """By its entry point, for Python 3.10 does not know the packages of every distribution."""
    points = [point for point in entry_points(group=GROUP) if point.module.partition(".")[0] == package]
    names = {f"{point.dist.name} {point.dist.version}" for point in points if point.dist is not None}
    return ", ".join(sorted(names)) or "not from a distribution"
