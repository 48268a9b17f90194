"""Config URLs: strict, with errors that list what there is, and never a password in a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import durastore
from durastore import ConfigError, urls
from durastore.urls import StoreURL, parse


def test_parts() -> None:
    """Scheme, address, namespace, create, and the store's own options."""
    url = parse("Scheme+X://user@host:5/da%20ta?namespace=team-1&create=true&pool=3")
    assert (url.scheme, url.address, url.path) == ("scheme+x", "user@host:5/da%20ta", "user@host:5/da ta")
    assert (url.namespace, url.create, dict(url.options)) == ("team-1", True, {"pool": "3"})
    assert parse("x://y") == StoreURL("x", "y", "default", None, {})


@pytest.mark.parametrize("url", ["", "agent.db", "sqlite:/x", "://x", "sqlite"])
def test_no_url(url: str) -> None:
    """What is no URL at all is answered by two that are."""
    with pytest.raises(ConfigError, match=r"not a store URL.*sqlite:///agent\.db"):
        parse(url)


@pytest.mark.parametrize("query", ["pool", "pool=1&&x=2", "=1&y"])
def test_bad_query(query: str) -> None:
    """Options that are not name=value are refused, not skipped."""
    with pytest.raises(ConfigError, match="bad options"):
        parse(f"x://y?{query}")


@pytest.mark.parametrize(
    ("url", "options"), [("x://y?a=1&a=2", {}), ("x://y?a=1", {"a": 2}), ("x://y?create=1", {"create": 1})]
)
def test_given_twice(url: str, options: dict[str, Any]) -> None:
    """An option given twice is an error, not a matter of which one wins."""
    with pytest.raises(ConfigError, match="given twice"):
        parse(url, options)


def test_keyword_options() -> None:
    """Options by keyword are those of the URL, converted in the same way."""
    url = parse("x://y", {"namespace": "n", "create": False, "pool": 3})
    assert (url.namespace, url.create, url.options) == ("n", False, {"pool": 3})


@pytest.mark.parametrize("value", ["", "a/b", "a b", "é", "x" * 65, 7, None, "a%2F"])
def test_bad_namespaces(value: Any) -> None:
    """A namespace is something that every store can put in front of a key."""
    with pytest.raises(ConfigError, match="namespace"):
        parse("x://y", {"namespace": value})


@pytest.mark.parametrize("value", ["yes", "", "2", 1.5, "True "])
def test_bad_create(value: Any) -> None:
    """True and false have few names: a typing mistake does not silently mean false."""
    with pytest.raises(ConfigError, match=r"'create'.*true or false"):
        parse("x://y", {"create": value})


@pytest.mark.parametrize(
    ("value", "meant"), [("true", True), ("TRUE", True), ("1", True), (True, True), ("false", False), ("0", False)]
)
def test_booleans(value: Any, *, meant: bool) -> None:
    """Both words in any case, and both digits."""
    assert parse("x://y", {"create": value}).create is meant


def test_own_options() -> None:
    """A backend reads its own options, converted; what it does not know is refused, with the list of what it does."""
    url = parse("x://y?pool=3&busy=0.5&name=n&kind=b&on=true")
    kinds: Any = {
        "pool": urls.integer,
        "busy": urls.seconds,
        "name": urls.text,
        "kind": urls.choice("a", "b"),
        "on": urls.boolean,
    }
    assert url.read(**kinds, other=urls.text) == {"pool": 3, "busy": 0.5, "name": "n", "kind": "b", "on": True}
    with pytest.raises(ConfigError, match=r"unknown option 'pool' for x://; known: busy, create, namespace"):
        parse("x://y?pool=3").read(busy=urls.seconds)


@pytest.mark.parametrize(
    ("convert", "value"),
    [(urls.integer, "1.5"), (urls.integer, True), (urls.integer, None), (urls.seconds, "-1"), (urls.seconds, "nan"),
     (urls.seconds, "inf"), (urls.seconds, "x"), (urls.text, ""), (urls.text, 5), (urls.choice("a", "b"), "A")],
)  # fmt: skip
def test_bad_values(convert: Any, value: Any) -> None:
    """A value that does not convert is an error that names its option and what was expected."""
    with pytest.raises(ConfigError, match="bad value for option 'name': expected"):
        parse("x://y", {"name": value}).read(name=convert)


@pytest.mark.parametrize(
    ("url", "shown"),
    [("postgresql://me:se@cret@host/db?x=se", "postgresql://me:***@host/db"), ("x://me@host/db", "x://me@host/db"),
     ("sqlite:///C:/x.db", "sqlite:///C:/x.db"), ("x://host:99/a", "x://host:99/a"), ("x://:secret@host", "x://:***@host")],
)  # fmt: skip
def test_redacted(url: str, shown: str) -> None:
    """A URL in a message has no password, and nothing of its options."""
    assert str(parse(url.replace("?x=se", ""))) == shown
    assert str(parse(url)) == shown


@example("//", "")
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="?")),
    st.text(st.sampled_from(":/@#%x")),
)
def test_no_password_in_any_message(before: str, after: str) -> None:
    """Whatever it is made of, a password does not come out again in a URL's text or its error."""
    assume("%00" not in before)
    url = f"postgresql://user:{before}://{after}Zq7{after}@host/db"
    assert "Zq7" not in str(parse(url))
    assert "Zq7" not in repr(durastore.Store(durastore.open("memory://").backend, url=str(parse(url))))
    assert "Zq7" not in urls.redact(url)
    assert str(parse(url)) == urls.redact(url) == "postgresql://user:***@host/db"


@pytest.mark.parametrize(
    "url", ["postgresql://user:pass?secret@host/db", "postgresql://user:pass?a=secret@host", "user:secret@host"]
)
def test_no_password_in_errors(url: str) -> None:
    """A password that breaks its URL is not shown by the error about it."""
    with pytest.raises(ConfigError) as raised:
        parse(url).read()
    assert "secret" not in str(raised.value)


def test_unknown_scheme() -> None:
    """A scheme that nobody registered lists those that somebody did."""
    with pytest.raises(ConfigError, match=r"unknown store scheme 'nonsense'://; known: .*memory://.*sqlite://"):
        durastore.open("nonsense://x")


def test_third_parties_use_the_same_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme is an entry point, and its factory gets the parsed URL."""
    seen: list[StoreURL] = []
    backend = durastore.open("memory://").backend
    register(monkeypatch, "thirdparty", lambda url: seen.append(url) or backend)
    durastore.open("thirdparty://place?colour=red", namespace="n").close()
    assert (seen[0].address, seen[0].namespace, seen[0].options) == ("place", "n", {"colour": "red"})


def register(monkeypatch: pytest.MonkeyPatch, name: str, factory: Any) -> None:
    class Point:
        def __init__(self) -> None:
            self.name = name

        def load(self) -> Any:
            if isinstance(factory, Exception):
                raise factory
            return factory

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point()] if group == urls.GROUP else [])


@pytest.mark.parametrize(
    ("scheme", "remedy"),
    [("firestore", r"pip install 'durastore\[firestore\]'"), ("cloudsql+mysql", r"pip install 'durastore\[cloudsql\]'"),
     ("theirs", "install what its backend package asks for")],
)  # fmt: skip
def test_missing_extra(monkeypatch: pytest.MonkeyPatch, scheme: str, remedy: str) -> None:
    """A backend whose packages are missing says what to install, and keeps the cause."""
    register(monkeypatch, scheme, ImportError("No module named 'sdk'"))
    with pytest.raises(ConfigError, match=rf"(?s)No module named 'sdk'.*{remedy}") as raised:
        durastore.open(f"{scheme}://x")
    assert isinstance(raised.value.__cause__, ImportError)


def test_no_url_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """No URL and no `DURASTORE_URL` (or an empty one): the error says what to set."""
    for value in (None, ""):
        monkeypatch.delenv("DURASTORE_URL", raising=False)
        if value is not None:
            monkeypatch.setenv("DURASTORE_URL", value)
        with pytest.raises(ConfigError, match="DURASTORE_URL"):
            durastore.open()


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`DURASTORE_URL` is used when no URL is given, and only then; options go on top of it."""
    monkeypatch.setenv("DURASTORE_URL", f"sqlite:///{tmp_path}/a.db")
    with durastore.open(namespace="n") as store:
        store.checkpoint("run").save_progress(1, {})
    with durastore.open("memory://") as store:
        assert store.backend.scheme == "memory"
    with durastore.open(f"sqlite:///{tmp_path}/a.db?namespace=n") as store:
        assert store.checkpoint("run").load().step == 1
    with durastore.open() as store:
        assert store.checkpoint("run").load().step == 0
