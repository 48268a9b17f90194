"""The suite on the store that ``--durastore-url`` names: ``pytest --pyargs durastore.conformance --durastore-url URL``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durastore.conformance.harness import UrlHarness
from durastore.conformance.suite import Conformance


class TestStore(Conformance):
    """Every clause, on the store of the command line."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Iterator[UrlHarness]:
        """A namespace of its own for each test."""
        config = request.config
        with UrlHarness(config.getoption("durastore_url"), setup=not config.getoption("durastore_no_setup")) as harness:
            yield harness
