"""The tests of this folder are themselves tested: backends that take an outage in a wrong way, each found out by one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore.conformance.proxy import Proxy
from durastore.errors import ClaimLost, ConfigError, DurastoreError, StoreUnavailable
from tests.conformance.broken import Forgetful, Wrapper
from tests.conftest import shared

from . import test_full_disk, test_rights, test_store_dies
from .conftest import Ground, in_file, in_namespace

pytestmark = pytest.mark.timeout(60)
Wrong = (AssertionError, DurastoreError, pytest.fail.Exception)
Wrap = Callable[[Any], Any]


class _Hasty(Wrapper):
    """takes what passes for final"""

    def classify(self, error: Exception) -> DurastoreError | None:
        found = self._backend.classify(error)
        return ConfigError(str(found)) if isinstance(found, StoreUnavailable) else found


class _Wordy(Wrapper):
    """says it in two lines"""

    def classify(self, error: Exception) -> DurastoreError | None:
        found = self._backend.classify(error)
        return None if found is None else type(found)(f"{found}\n{found}")


class _Boastful(Wrapper):
    """says that something is written when the store did not take it"""

    def commit(self, *args: Any, **rest: Any) -> Any:
        return self._unless_refused(self._backend.commit, *args, **rest)

    def put_chunks(self, *args: Any, **rest: Any) -> Any:
        return self._unless_refused(self._backend.put_chunks, *args, **rest)

    def _unless_refused(self, verb: Callable[..., Any], *args: Any, **rest: Any) -> Any:
        try:
            return verb(*args, **rest)
        except Exception as exc:
            if isinstance(self._backend.classify(exc), StoreUnavailable):
                return None
            raise


class _Timid(Wrapper):
    """holds a claim for lost when the store could not be asked"""

    def commit(self, grant: Any, **rest: Any) -> Any:
        try:
            return self._backend.commit(grant, **rest)
        except Exception as exc:
            if isinstance(self._backend.classify(exc), StoreUnavailable):
                raise ClaimLost("out of reach") from exc
            raise


class _Patient(Wrapper):
    """takes a right that is missing for something that passes"""

    def classify(self, error: Exception) -> DurastoreError | None:
        found = self._backend.classify(error)
        return StoreUnavailable(str(found)) if isinstance(found, ConfigError) else found


class _Vague(Wrapper):
    """says that a right is missing, and not which"""

    def classify(self, error: Exception) -> DurastoreError | None:
        found = self._backend.classify(error)
        return ConfigError("refused") if isinstance(found, ConfigError) else found


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """The cheapest."""
    made = in_file(tmp_path)
    with durastore.open(made.direct):
        return made


@pytest.mark.parametrize(
    ("wrap", "phase"),
    [
        (_Hasty, "before the claim"),
        (_Hasty, "before the commit"),
        (_Boastful, "before the commit"),
        (_Timid, "before the commit"),
    ],
)
def test_found_by_going_on(wrap: Wrap, phase: str, ground: Ground) -> None:
    """What does not wait, loses a result, or has a step done again does not pass."""
    with pytest.raises(Wrong):
        test_store_dies.goes_on(ground, phase, wrap)


@pytest.mark.parametrize(
    ("wrap", "phase", "mode"),
    [
        (_Hasty, "before the claim", "rerun"),
        (_Wordy, "before the claim", "rerun"),
        (_Boastful, "before the commit", "halt"),
        (Forgetful, "before the commit", "probe"),
    ],
)
def test_found_by_giving_up(wrap: Wrap, phase: str, mode: str, ground: Ground, tmp_path: Path) -> None:
    """What gives up too early, says it badly, or breaks the promise afterwards does not pass."""
    with pytest.raises(Wrong):
        test_store_dies.gives_up(ground, phase, mode, tmp_path, wrap)


@pytest.mark.parametrize("wrap", [_Hasty, _Boastful])
def test_found_by_a_full_disk(wrap: Wrap, tmp_path: Path) -> None:
    """The same where there is no room."""
    with test_full_disk.STORES["sqlite"](None, tmp_path) as small, pytest.raises(Wrong):
        test_full_disk.goes_on(small, wrap)


@pytest.fixture
def postgresql() -> Iterator[tuple[str, Proxy]]:
    url = in_namespace(shared("postgresql"))
    with durastore.open(url, create=True):
        pass
    with Proxy.before(url) as proxy:
        yield url, proxy


@pytest.mark.parametrize("wrap", [_Patient, _Vague])
def test_found_by_missing_rights(wrap: Wrap, postgresql: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """What tries again what cannot pass, or does not say what to grant, does not pass."""
    monkeypatch.setattr("durastore.store.DEADLINE", 0.3)
    with pytest.raises(Wrong):
        test_rights.denied("postgresql", *postgresql, "claim", wrap)


def test_the_unbroken_one_passes(ground: Ground, tmp_path: Path, postgresql: tuple[str, Proxy]) -> None:
    """It is the fault that is found, not the wrapper."""
    test_store_dies.goes_on(ground, "before the commit", Wrapper)
    test_store_dies.gives_up(ground, "before the claim", "rerun", tmp_path, Wrapper)
    test_rights.denied("postgresql", *postgresql, "claim", Wrapper)
