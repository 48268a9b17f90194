"""Which way a client takes to its store, and how it is led through a proxy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from durastore.conformance.framing import FRAMINGS, Framing

__all__ = ["Route", "route_of"]

_PORTS = {"postgresql": 5432, "mysql": 3306}
_OPTIONS = {"firestore": "emulator_host", "dynamodb": "endpoint_url"}
_WITHOUT_TLS = {"disable", "allow", "prefer"}


@dataclass(frozen=True, slots=True)
class Route:
    """A server that is spoken to without TLS, in a protocol that we can read."""

    scheme: str
    host: str
    port: int

    @property
    def framing(self) -> Callable[[], Framing]:
        """Made anew for each connection."""
        return FRAMINGS[self.scheme]

    def through(self, url: str, port: int) -> str:
        """The URL with this server replaced by a port of this machine."""
        if self.scheme in _PORTS:
            parts = urlsplit(url)
            user, at, _ = parts.netloc.rpartition("@")
            return parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
        base, _, query = url.partition("?")
        name = _OPTIONS[self.scheme]
        here = f"http://127.0.0.1:{port}" if self.scheme == "dynamodb" else f"127.0.0.1:{port}"
        options = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != name]
        return f"{base}?{urlencode([*options, (name, here)], quote_via=quote)}"


def route_of(url: str) -> Route | None:
    """The route to a store; None where there is no network between, or one that nobody can look into."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme in _PORTS:
        if not parts.hostname or options.get("sslmode", "prefer") not in _WITHOUT_TLS:
            return None
        return Route(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
    given = options.get(_OPTIONS.get(parts.scheme, ""), "")
    if not given or given.startswith("https:"):
        return None
    there = urlsplit(given if "//" in given else f"//{given}")
    return None if not there.hostname else Route(parts.scheme, there.hostname, there.port or 80)
