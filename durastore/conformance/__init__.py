"""The conformance suite: one test for each clause of :mod:`durastore.contract`, for any store that durastore can open.

Three doors, one suite (extra ``test``)::

    pytest --pyargs durastore.conformance --durastore-url URL
    durastore conformance URL --report report.md

    class TestMyStore(Conformance):            # in your own tests
        @pytest.fixture
        def harness(self):
            with UrlHarness("mystore://somewhere") as harness:
                yield harness

It works in namespaces of its own with random names, and cleans up behind itself. Even so, give it a store made for tests:
a backend that mixes namespaces up is what it looks for. See "Write a backend" in CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durastore.conformance.harness import Harness, UrlHarness, UserData
    from durastore.conformance.marks import clause, instead_of
    from durastore.conformance.runner import run
    from durastore.conformance.suite import Conformance

__all__ = ["Conformance", "Harness", "UrlHarness", "UserData", "clause", "instead_of", "run"]

_HOMES = {
    "Conformance": "suite",
    "Harness": "harness",
    "UrlHarness": "harness",
    "UserData": "harness",
    "clause": "marks",
    "instead_of": "marks",
    "run": "runner",
}

if "pytest" in sys.modules:  # whichever door: the assertions of every module here explain themselves
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))


def __getattr__(name: str) -> Any:
    """The public names, loaded when asked for: reports and the command line work without pytest and Hypothesis."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
