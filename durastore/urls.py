"""Config URLs: ``SCHEME://ADDRESS?option=value``. Strict: an unknown scheme, option or value is an error that lists the known.

Backends are found through the entry-point group ``durastore.backends``: the name is the scheme, the object a function
``connect(url: StoreURL) -> Backend``. The built-in ones use the same door as third parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from durastore.errors import ConfigError

if TYPE_CHECKING:
    from durastore.contract import Backend

__all__ = ["StoreURL", "boolean", "choice", "connect", "integer", "parse", "redact", "seconds", "text"]

GROUP = "durastore.backends"
NAMESPACE_MAX = 64
"""Characters of a namespace; stores put it in front of keys."""
_EXTRAS = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "cloudsql+postgresql": "cloudsql",
    "cloudsql+mysql": "cloudsql",
    "firestore": "firestore",
    "dynamodb": "dynamodb",
}
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
"""Categories of Unicode that no URL may hold as they are: control characters, surrogates, line and paragraph separators."""
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A parsed config URL. `address` is what stands between ``://`` and ``?``, still percent-encoded."""

    scheme: str
    address: str
    namespace: str = "default"
    create: bool | None = None
    """True: set up, False: touch nothing that is absent, None (not given): as the store does by itself."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def read(self, **converters: Convert) -> dict[str, Any]:
        """The backend's own options, converted; those not given are left out.

        Raises `ConfigError` for an option that `converters` does not name, and for a value that does not convert.
        """
        unknown = sorted(set(self.options) - set(converters))
        if unknown:
            known = ", ".join(sorted({*converters, "namespace", "create"}))
            raise ConfigError(f"unknown option {unknown[0]!r} for {self.scheme}://; known: {known}")
        return {name: _convert(name, value, converters[name]) for name, value in self.options.items()}

    @property
    def path(self) -> str:
        """The address, percent-decoded."""
        from urllib.parse import unquote

        return unquote(self.address)

    def __str__(self) -> str:
        return redact(f"{self.scheme}://{self.address}")


def parse(url: str, options: Mapping[str, Any] | None = None) -> StoreURL:
    """Parse a config URL. Keyword `options` go on top of those in the URL; one given twice is an error."""
    _check_characters(url)
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme:
        raise ConfigError(
            f"not a store URL: {redact(url)!r}; it looks like 'sqlite:///agent.db' or 'postgresql://USER@HOST/DATABASE'"
        )
    address, _, query = rest.partition("?")
    given = _merge(_pairs(query), options or {}, scheme)
    namespace = _convert("namespace", given.pop("namespace", "default"), _namespace)
    create = _convert("create", given.pop("create", None), lambda value: None if value is None else boolean(value))
    return StoreURL(scheme.lower(), address, namespace, create, given)


def _check_characters(url: str) -> None:
    """A NUL ends strings elsewhere, `urlsplit` drops newlines without a word, and messages are one line. Percent-encoded ones may
    stand in a password alone, but for NUL.
    """
    from unicodedata import category
    from urllib.parse import unquote

    shown = url + unquote(url.rpartition("@")[2])
    bad = next((mark for mark in shown if not mark.isprintable() and category(mark) in _UNSEEN), None)
    if bad is None and "%00" in url:
        bad = "\0"
    if bad is not None:  # the URL itself is not shown: who knows where in it a password ends
        raise ConfigError(
            f"the store URL holds {bad!r}: no line break, control character, NUL or lone surrogate may be in it"
        )


def _pairs(query: str) -> list[tuple[str, str]]:
    from urllib.parse import parse_qsl

    try:
        return parse_qsl("@" if "@" in query else query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError(
            "bad options in the store URL: write them as ?name=value&name=value, a ? in a password as %3F, "
            "and an @ in an option as %40"
        ) from None  # what stands there may be the rest of a password


def _merge(pairs: list[tuple[str, str]], options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name, value in [*pairs, *options.items()]:
        if name in merged:
            raise ConfigError(f"option {name!r} for {scheme}:// is given twice")
        merged[name] = value
    return merged


def connect(url: StoreURL) -> Backend:
    """The backend for a URL, not yet set up.

    Raises `ConfigError` for an unknown scheme (it lists the known ones) or a missing extra (it says what to install).
    """
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group=GROUP)}
    if url.scheme not in found:
        known = ", ".join(f"{name}://" for name in sorted(found))
        raise ConfigError(f"unknown store scheme {url.scheme!r}://; known: {known}")
    try:
        factory = found[url.scheme].load()
    except ImportError as exc:
        raise ConfigError(
            f"{url.scheme}:// needs a package that is not installed ({exc}); {_remedy(url.scheme)}"
        ) from exc
    backend: Backend = factory(url)
    return backend


def _remedy(scheme: str) -> str:
    extra = _EXTRAS.get(scheme)
    return f"run: pip install 'durastore[{extra}]'" if extra else "install what its backend package asks for"


def redact(url: str) -> str:
    """The URL without its password, for messages."""
    head, at, tail = url.rpartition("@")
    scheme, separator, user = head.partition("://")
    if not separator or ":" in scheme:  # no scheme in front, or a :// within the password
        scheme, separator, user = "", "", head
    if not at or ":" not in user:
        return url
    return f"{scheme}{separator}{user.partition(':')[0]}:***@{tail}"


def _convert(name: str, value: Any, convert: Convert) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"bad value for option {name!r}: {exc}") from None


def _namespace(value: Any) -> str:
    from urllib.parse import quote

    if not isinstance(value, str) or not value or len(value) > NAMESPACE_MAX or quote(value, safe="") != value:
        raise ValueError(f"a namespace is 1 to {NAMESPACE_MAX} of A-Z a-z 0-9 - . _ ~, not {value!r}")
    return value


def boolean(value: Any) -> bool:
    """``true`` or ``false`` (also 1 and 0), nothing else."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise ValueError(f"expected true or false, not {value!r}")


def integer(value: Any) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"expected a whole number, not {value!r}")
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"expected a whole number, not {value!r}") from None


def seconds(value: Any) -> float:
    """A number of seconds, not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"expected seconds, not {value!r}") from None
    if not 0 <= number < float("inf"):
        raise ValueError(f"expected seconds, 0 or more, not {value!r}")
    return number


def text(value: Any) -> str:
    """Any text but the empty one, NUL and lone surrogates."""
    if not isinstance(value, str) or not value or "\0" in value or not value.isprintable():
        raise ValueError(f"expected text that can be printed, not {value!r}")
    return value


def choice(*names: str) -> Callable[[Any], str]:
    """One of a few words."""

    def convert(value: Any) -> str:
        if value not in names:
            raise ValueError(f"expected one of {', '.join(names)}, not {value!r}")
        return str(value)

    return convert
