"""The suite on the store that ``--durastore-url`` names: ``pytest --pyargs durastore.conformance --durastore-url URL``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durastore.conformance.harness import UrlHarness
from durastore.conformance.suite import Conformance


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Called for each test as it is collected. Without a store none is."""
    if not metafunc.config.getoption("durastore_url"):
        raise pytest.UsageError("which store? pytest --pyargs durastore.conformance --durastore-url URL")


class TestStore(Conformance):
    """Every clause, on the store of the command line."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Iterator[UrlHarness]:
        """A namespace of its own for each test."""
        config = request.config
        with UrlHarness(config.getoption("durastore_url"), setup=not config.getoption("durastore_no_setup")) as harness:
            yield harness
