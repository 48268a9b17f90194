"""The options of durastore's conformance suite, for pytest. All that a test run which does not use them ever loads.

It is a package of its own so that pytest finds the options without importing durastore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_configure"]

URL_VARIABLE = "DURASTORE_CONFORMANCE_URL"
SURFACE_VARIABLE = "DURASTORE_CONFORMANCE_SURFACE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The command line of the suite."""
    group = parser.getgroup("durastore", "conformance of a durastore backend (pytest --pyargs durastore.conformance)")
    group.addoption(
        "--durastore-url",
        metavar="URL",
        help=f"the store to test; its namespaces are the suite's own (or ${URL_VARIABLE}, which no process list shows)",
    )
    group.addoption("--durastore-no-setup", action="store_true", help="the store is set up already; do not try")
    group.addoption(
        "--durastore-report",
        metavar="FILE",
        action="append",
        default=[],
        help="write the report: .txt, .json or .md; {suite} in the name stands for the test class",
    )
    group.addoption(
        "--durastore-examples", metavar="N", type=int, help="random programs of the model layer (default 100)"
    )
    group.addoption(
        "--durastore-surface",
        choices=("sync", "async"),
        help=f"what the suite's own programs use: durastore, or durastore.aio (or ${SURFACE_VARIABLE}; default sync)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the suite's plugin, but only for those who ask for it."""
    import os

    config.option.durastore_url = config.option.durastore_url or os.environ.get(URL_VARIABLE)
    if config.option.durastore_surface:
        os.environ[SURFACE_VARIABLE] = config.option.durastore_surface  # for the suite's own processes as well
    if config.option.durastore_url or config.option.durastore_report or config.option.durastore_examples:
        from durastore.conformance.plugin import register

        register(config)
