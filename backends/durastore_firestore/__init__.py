"""durastore on Firestore in native mode: ``firestore://PROJECT[/DATABASE]``.

Options of the URL: `collection` (the prefix of its collections, ``durastore``), `emulator_host` (``HOST:PORT``; else the
environment variable ``FIRESTORE_EMULATOR_HOST``), `timeout` (seconds for one RPC, 10). Credentials are Google's Application
Default Credentials; with an emulator, none. A database's name may be percent-encoded.

Firestore creates collections by itself; the database, the two composite indexes for listings by prefix, the exemptions from
single-field indexes and the TTL policy are Terraform's (`INDEXES`, `INDEXED`, `TTL`). Without them everything works, listings by
prefix that also filter by run or state excepted; writes cost more.
"""

from __future__ import annotations

from durastore.urls import StoreURL
from durastore_firestore.backend import FirestoreBackend
from durastore_firestore.listing import INDEXED, INDEXES, TTL
from durastore_firestore.target import Target, parse

__all__ = ["INDEXED", "INDEXES", "TTL", "FirestoreBackend", "Target", "connect"]


def connect(url: StoreURL) -> FirestoreBackend:
    """Open ``firestore://PROJECT[/DATABASE]``; nothing is sent yet.

    Raises `ConfigError` for a bad URL, and when there are no credentials.
    """
    return FirestoreBackend(parse(url))
