"""What Firestore's errors mean, and what to run: `classify` and `check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

from durastore.contract import Finding
from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable
from durastore_firestore import listing, wire
from durastore_firestore.documents import Names
from durastore_firestore.rpc import Rpc
from durastore_firestore.target import Target

__all__ = ["check", "classify"]

_Code = grpc.StatusCode
_PASSING = frozenset(
    {
        _Code.ABORTED,
        _Code.CANCELLED,
        _Code.DEADLINE_EXCEEDED,
        _Code.INTERNAL,
        _Code.RESOURCE_EXHAUSTED,
        _Code.UNAVAILABLE,
        _Code.UNKNOWN,
    }
)
_NEVER = 1
"""A version that no document has: a write on this condition changes nothing, but needs the right to write."""
_LOGIN = (
    "run: gcloud auth application-default login, or give the service account's key in GOOGLE_APPLICATION_CREDENTIALS"
)


def classify(error: Exception, target: Target) -> DurastoreError | None:
    """As in the contract."""
    if isinstance(error, (DefaultCredentialsError, RefreshError)):
        return ConfigError(f"Google refuses the credentials ({_line(error)}); {_LOGIN}")
    if isinstance(error, GoogleAuthError):
        return StoreUnavailable(f"no access token from Google: {_line(error)}")
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return _meaning(error.code(), error.details() or "", target)
    if isinstance(error, GoogleAPICallError) and error.grpc_status_code in _PASSING:  # from a read of an effect's own
        return StoreUnavailable(f"Firestore: {_line(error)}")
    return None


def _line(error: Exception | str) -> str:
    return (str(error).split("\n", 1)[0] or type(error).__name__)[:300]


def _meaning(code: grpc.StatusCode, details: str, target: Target) -> DurastoreError | None:
    said = f"Firestore: {code.name}: {_line(details)}"
    final = _FINAL.get(code)
    found = None if final is None else final(details, said, target)
    if found is not None:
        return found
    return StoreUnavailable(said) if code in _PASSING or code is _Code.FAILED_PRECONDITION else None


def _unavailable(details: str, said: str, _: Target) -> DurastoreError | None:
    if any(word in details for word in ("invalid_grant", "Reauthentication", "RefreshError", "invalid_scope")):
        return ConfigError(f"{said}; {_LOGIN}")
    return None


def _too_large(details: str, said: str, _: Target) -> DurastoreError | None:
    if any(
        word in details
        for word in ("is longer than", "exceeds the maximum", "exceeds maximum size", "too large", "too big")
    ):
        return PayloadError(f"{said}; one commit takes 10 MiB and one document 1 MiB: write less in one transact()")
    return None


def _denied(details: str, said: str, target: Target) -> DurastoreError:
    if "has not been used" in details or "is disabled" in details or "SERVICE_DISABLED" in details:
        return ConfigError(f"{said}; run: gcloud services enable firestore.googleapis.com --project={target.project}")
    return ConfigError(
        f"{said}; run: gcloud projects add-iam-policy-binding {target.project} --member=serviceAccount:NAME "
        f"--role=roles/datastore.user"
    )


def _unauthenticated(_: str, said: str, __: Target) -> DurastoreError:
    return ConfigError(f"{said}; {_LOGIN}")


def _not_found(_: str, said: str, target: Target) -> DurastoreError:
    return SchemaError(f"{said}; run: {_create(target)}, or apply terraform/firestore")


def _create(target: Target) -> str:
    return (
        f"gcloud firestore databases create --database='{target.database}' --location=LOCATION --type=firestore-native "
        f"--project={target.project}"
    )


def _precondition(details: str, said: str, target: Target) -> DurastoreError | None:
    if "atastore mode" in details.lower() or "cloud datastore" in details.lower():
        return ConfigError(
            f"{said}; the database is in Datastore mode, durastore needs native mode: name another database in the URL and "
            f"run: {_create(target)}"
        )
    if "requires an index" in details or "index is currently building" in details:
        return SchemaError(f"{said}; run: {'; '.join(_index_commands(target))}")
    return None


_FINAL: dict[grpc.StatusCode, Callable[[str, str, Target], DurastoreError | None]] = {
    _Code.FAILED_PRECONDITION: _precondition,
    _Code.INVALID_ARGUMENT: _too_large,
    _Code.NOT_FOUND: _not_found,
    _Code.PERMISSION_DENIED: _denied,
    _Code.RESOURCE_EXHAUSTED: _too_large,
    _Code.UNAUTHENTICATED: _unauthenticated,
    _Code.UNAVAILABLE: _unavailable,
}


def _index_commands(target: Target) -> list[str]:
    return [
        f"gcloud firestore indexes composite create --project={target.project} --database='{target.database}' "
        f"--collection-group={target.collection}_{collection} --query-scope=collection "
        + " ".join(f"--field-config=field-path={field},order=ascending" for field in fields)
        for collection, indexes in listing.INDEXES.items()
        for fields in indexes
    ]


def check(target: Target, names: Names, rpc: Rpc) -> Sequence[Finding]:
    """Where the database is, whether we may read and write it, and whether listings by prefix have their indexes."""
    where = f"emulator at {target.emulator_host}" if target.emulator_host else "Google Cloud"
    findings = [
        Finding("database", ok=True, detail=f"{target.path} on {where}"),
        _finding("read", "native mode, readable", target, lambda: rpc.get([names.run("")])),
    ]
    if not findings[-1].ok:
        return findings
    findings.append(_finding("write", "writable", target, lambda: rpc.attempt([wire.delete(names.run(""), _NEVER)])))
    return [*findings, *(_index(fields, target, names, rpc) for fields in listing.INDEXES["records"])]


def _index(fields: Sequence[str], target: Target, names: Names, rpc: Rpc) -> Finding:
    filters = {"run_id": "", "state": "committed"}
    query = listing.Query(names.records).where(fields[0], "==", filters[fields[0]])
    query.where("key", ">=", " ").order("key").limit(1).select("key")
    name = f"index {' + '.join(fields)}"
    return _finding(name, "listings by prefix can use it", target, lambda: rpc.query(names.root, query.build()))


def _finding(name: str, detail: str, target: Target, look: Callable[[], object]) -> Finding:
    try:
        look()
    except (grpc.RpcError, GoogleAuthError) as error:
        meaning = classify(error, target)
        if meaning is None:
            raise
        what, _, advice = str(meaning).partition("; ")
        return Finding(
            name, ok=False, detail=what, advice=advice or "try again; see whether the network lets gRPC through"
        )
    return Finding(name, ok=True, detail=detail)
