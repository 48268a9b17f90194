"""What the suite needs of a store: fresh contents for each test, any number of clients, and a way in for other processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

from durastore import urls
from durastore.conformance.paging import every, sweep_all
from durastore.conformance.patient import patient
from durastore.conformance.rendering import without_password
from durastore.conformance.userdata import UserData, user_data_for
from durastore.conformance.versions import versions
from durastore.contract import Backend
from durastore.errors import ConfigError, StoreUnavailable

__all__ = ["BASE", "Harness", "UrlHarness", "UserData", "preflight"]

BASE = 2_000_000_000_000_000
"""Where virtual time begins, in microseconds: May 2033, so that no store's own expiry takes part."""
_PAST = 1
_FUTURE = 2 * BASE
_SUFFIX_BYTES = 6
_PREFLIGHT_SECONDS = 10.0


class Harness(Protocol):
    """One test's hold on the store. Its contents are empty at first and are seen by no other test."""

    @property
    def url(self) -> str | None:
        """What another process opens to see the same contents; None when none can (races then run with threads)."""
        ...

    @property
    def clock_margin(self) -> int:
        """Microseconds by which the store may be wrong about a lease's end, by its own documentation."""
        ...

    @property
    def user_data(self) -> UserData | None:
        """How effects of `transact` write the application's own data; None leaves those clauses "not run"."""
        ...

    def open(self) -> Backend:
        """A client of its own, with connections of its own, on this test's contents."""
        ...

    def elsewhere(self) -> Backend:
        """A client on other contents of the same store: another namespace."""
        ...

    def describe(self) -> Mapping[str, str]:
        """What the report says about the store: at least ``store`` and ``url`` (without its password)."""
        ...


class UrlHarness:
    """A `Harness` on whatever a config URL names, in a namespace with a random name. A context manager; cleans up at its end.

    `setup` calls the backend's `setup` once per URL and process. Raises `ConfigError` for a bad URL, and `StoreUnavailable`
    for a store that cannot be set up or does not answer (it is asked once).
    """

    def __init__(self, url: str, *, setup: bool = True, user_data: UserData | None = None) -> None:
        problem = preflight(url, setup=setup)
        if problem is not None:
            raise StoreUnavailable(problem)
        self._parsed = urls.parse(url)
        self._in_process = self._parsed.scheme == "memory"
        self._name = f"{self._parsed.namespace[:40]}-{os.urandom(_SUFFIX_BYTES).hex()}"
        self._opened: list[Backend] = []
        self._elsewhere: Backend | None = None
        self._target = _with_name(url, self._parsed, self._name) if self._in_process else url
        self._user_data = user_data or user_data_for(self._parsed.scheme)

    @property
    def url(self) -> str | None:
        return None if self._in_process else _in_namespace(self._target, self._name)

    @property
    def clock_margin(self) -> int:
        return int(getattr(self._opened[0] if self._opened else self.open(), "clock_margin", 0))

    @property
    def user_data(self) -> UserData | None:
        return self._user_data

    def open(self) -> Backend:
        return self._open(self._name)

    def elsewhere(self) -> Backend:
        self._elsewhere = self._open(f"{self._name}-b")
        return self._elsewhere

    def _open(self, namespace: str) -> Backend:
        backend = urls.connect(replace(urls.parse(self._target), namespace=namespace))
        self._opened.append(backend)
        return backend

    def describe(self) -> Mapping[str, str]:
        backend = self._opened[0] if self._opened else self.open()
        shared = "no" if self._in_process else "yes"
        about = {"store": self._parsed.scheme, "url": str(self._parsed), "shared between processes": shared}
        return about | dict(versions(backend))

    def close(self) -> None:
        """Remove what the test left, and close its clients."""
        try:
            if self._opened:
                if self._user_data is not None:
                    self._user_data.clear(patient(self._opened[0]))
                clear(patient(self.open()))
            if self._elsewhere is not None:
                clear(patient(self.elsewhere()))
        finally:
            for backend in self._opened:
                backend.close()

    def __enter__(self) -> UrlHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def clear(backend: Backend) -> None:
    """Remove every record, run and chunk of a namespace, whatever their retention says."""
    for records in every(lambda cursor: backend.scan(cursor=cursor, now=_PAST)):
        for record in records.items:
            backend.delete(record, now=_PAST)
    for runs in every(lambda cursor: backend.scan_runs(cursor=cursor)):
        for run in runs.items:
            backend.delete_run(run.run_id)
    for _ in sweep_all(backend, now=_FUTURE):
        pass


@cache
def preflight(url: str, *, setup: bool) -> str | None:
    """Set up and ask for the time, once; what went wrong, in one line and without a password, or None.

    Raises `ConfigError` for a bad URL.
    """
    try:
        backend = urls.connect(urls.parse(url))
        try:
            if setup:
                patient(backend, _PREFLIGHT_SECONDS).setup()
            patient(backend, _PREFLIGHT_SECONDS).time()
        finally:
            backend.close()
    except ConfigError:
        raise
    except Exception as exc:  # noqa: BLE001  whatever a driver raises
        said = " ".join(f"{type(exc).__name__}: {exc}".split())
        return f"{urls.parse(url)} cannot be {'set up' if setup else 'reached'}: {without_password(said, url)}"
    return None


def _with_name(url: str, parsed: urls.StoreURL, name: str) -> str:
    """``memory://`` is private to each client; under a name they share it."""
    return url if parsed.address else url.replace("://", f"://{name}", 1)


def _in_namespace(url: str, namespace: str) -> str:
    base, _, query = url.partition("?")
    options: list[tuple[str, Any]] = [
        pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "namespace"
    ]
    return f"{base}?{urlencode([*options, ('namespace', namespace)])}"
