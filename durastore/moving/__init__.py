"""Moving runs, keys, results, tokens and retention from one store to another, or through a file.

Payloads travel as the bytes of their codec, which need not be known: encrypted ones stay encrypted. What is moved is placed
(:meth:`durastore.contract.Backend.place`) only where its key or run is absent; nothing at the destination is ever overwritten.
"""

from __future__ import annotations

from durastore.moving.copying import copy, look, verify
from durastore.moving.filing import checked, exported, imported
from durastore.moving.ndjson import VERSION
from durastore.moving.tally import Refusal, Tally

__all__ = ["VERSION", "Refusal", "Tally", "checked", "copy", "exported", "imported", "look", "schema", "verify"]


def schema() -> str:
    """The JSON Schema of the lines of an export."""
    from importlib.resources import files

    return files("durastore.moving").joinpath("export.schema.json").read_text(encoding="utf-8")
