"""Which versions a report is about."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions, version

import durastore
from durastore.contract import Backend

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
    names = packages_distributions().get(package, [])
    return ", ".join(f"{name} {version(name)}" for name in sorted(set(names))) or "not from a distribution"
