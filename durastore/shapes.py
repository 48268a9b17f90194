"""Shapes: the type that a result is decoded into, so that a replay returns what the first run returned.

Pydantic (extra ``pydantic``) turns a value of the type into data that every codec takes, and such data into a value. Whoever asks
gets the decoded value, also the caller whose effect has just run. Data is read strictly, so that nothing is bent until it fits: a
string is no number. Fields go by their names, never by an alias: that is the one form which every model can read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, Union, _SpecialForm, get_args

from durastore.errors import ConfigError, PayloadError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Shape", "TypeForm", "shape"]

TypeForm: TypeAlias = Union[UnionType, _SpecialForm]  # noqa: UP007  evaluated on 3.10
"""What type checkers take ``Order | None`` and ``Optional[Order]`` for. They cannot say of which type: the effect's stands."""

_PROBLEMS_MAX = 5
"""Problems of a value that a message names."""


class Shape:
    """One type. Messages name fields and kinds of problems, never what a value holds."""

    __slots__ = ("_adapter", "name")

    def __init__(self, name: str, adapter: TypeAdapter[Any]) -> None:
        self.name = name
        self._adapter = adapter

    def dump(self, value: Any) -> Any:
        """The value as data that JSON takes. Raises `PayloadError`."""
        try:
            return self._adapter.dump_python(value, mode="json", round_trip=True, by_alias=False, warnings=False)
        except Exception as exc:  # noqa: BLE001  a type's own serialisers raise what they like
            kind = type(exc).__name__
        raise PayloadError(f"a {type(value).__name__} cannot be encoded as {self.name}: {kind}")

    def load(self, data: Any) -> Any:
        """The value of such data. Raises `PayloadError` when it does not fit."""
        try:
            return self._adapter.validate_json(json.dumps(data), strict=True, by_alias=False, by_name=True)
        except Exception as exc:  # noqa: BLE001  a type's own validators raise what they like
            problems = self._problems(exc)
        raise PayloadError(f"it does not fit {self.name} ({problems})")

    def read(self, key: str, data: Any) -> Any:
        """The value of a key's stored data. Raises `PayloadError` when it does not fit."""
        try:
            return self.load(data)
        except PayloadError as exc:
            problem = str(exc)
        raise PayloadError(
            f"the stored result of key {key!r} is not what returns= says: {problem}. Nothing was run or changed. Ask "
            f"with the type that it was written with, or without returns=, or settle it anew: "
            f"store.resolve({key!r}, result=…, force=True)"
        )

    def _problems(self, error: Exception) -> str:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            return type(error).__name__
        names = set(_field_names(self._adapter.core_schema))
        found = error.errors(include_url=False, include_context=False, include_input=False)
        told = [f"{_place(problem['loc'], names)}{problem['type']}" for problem in found[:_PROBLEMS_MAX]]
        return ", ".join(told) + (f" and {len(found) - _PROBLEMS_MAX} more" if len(found) > _PROBLEMS_MAX else "")


def _place(where: tuple[int | str, ...], names: set[str]) -> str:
    """Where a problem is. What is neither an index nor a field's name comes from the value, and is not told."""
    if not where:
        return ""
    return ".".join(str(part) if isinstance(part, int) or part in names else "*" for part in where) + ": "


def _field_names(schema: Any) -> Iterator[str]:
    """The names of the fields that a Pydantic core schema has, at any depth."""
    if isinstance(schema, Mapping):
        fields = schema.get("fields")
        if isinstance(fields, Mapping):
            yield from fields
        elif isinstance(fields, list):
            yield from (field if isinstance(field, str) else field["name"] for field in fields)
        for name, inner in schema.items():
            if name not in {"default", "metadata"}:  # values of the user's, which are no schema
                yield from _field_names(inner)
    elif isinstance(schema, (list, tuple)):
        for inner in schema:
            yield from _field_names(inner)


def shape(returns: Any) -> Shape:
    """The shape of a type: a dataclass, a `TypedDict`, a Pydantic model, or what is made of them (``list[Order]``).

    Raises `ConfigError` without the extra, or for what Pydantic has no schema for.
    """
    try:
        return _cached(returns, repr(returns))
    except TypeError:  # metadata of an Annotated need not be hashable
        return _made(returns)


@lru_cache(maxsize=256)
def _cached(returns: Any, spelling: str) -> Shape:  # noqa: ARG001  equal unions differ by order, and order can matter
    return _made(returns)


def _made(returns: Any) -> Shape:
    try:
        from pydantic import PydanticUserError, TypeAdapter, version
        from pydantic.errors import PydanticUndefinedAnnotation

        if tuple(map(int, version.VERSION.split(".")[:2])) < (2, 11):
            raise ImportError(f"Pydantic {version.VERSION} is too old")  # noqa: TRY301  said the same way
    except ImportError as exc:
        raise ConfigError("returns= needs Pydantic 2.11 or later; run: pip install 'durastore[pydantic]'") from exc
    name = repr(returns) if get_args(returns) else str(getattr(returns, "__qualname__", returns))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(returns)
    except (PydanticUserError, PydanticUndefinedAnnotation) as exc:
        reason = str(exc).split("\n", 1)[0]
        raise ConfigError(f"returns={name} is no type that Pydantic can read and write: {reason}") from exc
    if not adapter.pydantic_complete:
        raise ConfigError(f"returns={name} uses names that are not defined yet")
    return Shape(name, adapter)
