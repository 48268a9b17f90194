"""What errors of boto3 mean, and what to do about them."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable
from durastore_dynamodb.api import code_of
from durastore_dynamodb.target import Target

__all__ = ["CREATE", "DENIED", "classify"]

CREATE = "run: durastore init, or apply terraform/dynamodb"
_PASSING = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "NotAuthorized"})
_OTHER_TABLE = ("does not match the schema", "does not have the specified index", "specified index does not exist")
"""What is said about a table with other keys or indexes. Of a transaction it may be about an item of the effect's own."""
_SERVER_ERROR = 500
_LOGIN = "run: aws sts get-caller-identity, to see whose credentials these are; aws configure sets others"


def classify(error: Exception, target: Target) -> DurastoreError | None:
    """As in the contract."""
    if isinstance(error, ClientError):
        return _answered(error, target)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return ConfigError(f"no AWS credentials ({_line(error)}); {_LOGIN}")
    if isinstance(error, NoRegionError):
        return ConfigError("no AWS region; add ?region=eu-central-1 to the URL")
    if isinstance(error, (SSOError, TokenRetrievalError)):
        return ConfigError(f"the AWS login has ended ({_line(error)}); run: aws sso login")
    if isinstance(error, (BotoConnectionError, HTTPClientError, CredentialRetrievalError, MetadataRetrievalError)):
        return StoreUnavailable(f"DynamoDB: {_line(error)}")
    return ConfigError(f"boto3: {_line(error)}") if isinstance(error, BotoCoreError) else None


def _line(error: Exception | str) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _answered(error: ClientError, target: Target) -> DurastoreError | None:
    code = code_of(error)
    response: Any = error.response
    said = f"DynamoDB: {code}: {_line(response.get('Error', {}).get('Message', ''))}"
    if code == "TransactionCanceledException":
        return _cancelled(response, said)
    if code in _PASSING or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_ERROR:
        return StoreUnavailable(said)
    if code in _CREDENTIALS:
        return ConfigError(f"{said}; {_LOGIN}")
    if code in DENIED:
        return ConfigError(f"{said}; allow the actions of durastore_dynamodb.ACTIONS on table {target.table!r}")
    if code == "ResourceNotFoundException":
        return SchemaError(f"table {target.table!r} or one of its indexes is missing ({said}); {CREATE}")
    if code != "ValidationException":
        return None
    if error.operation_name != "TransactWriteItems" and any(words in said for words in _OTHER_TABLE):
        return SchemaError(f"table {target.table!r} is not durastore's, or lacks an index ({said}); {CREATE}")
    if error.operation_name == "UpdateItem" and "incorrect data type" in said:
        return PayloadError(f"a record or run is damaged: restore it or remove it in the store itself ({said})")
    return _invalid(said)


def _cancelled(response: Any, said: str) -> DurastoreError | None:
    """A transaction that was cancelled for passing reasons alone may be sent again; a failed condition is the caller's."""
    codes = {reason.get("Code") for reason in response.get("CancellationReasons", [])} - {"None", None}
    if codes and codes <= _PASSING:
        return StoreUnavailable(said)
    return _invalid(said) if "ValidationError" in codes else None


def _invalid(said: str) -> DurastoreError | None:
    low = said.lower()
    if "size" in low and any(word in low for word in ("exceed", "maximum", "too large", "larger")):
        return PayloadError(
            f"{said}; an item takes 400 KB, a transaction 100 items and 4 MB: write less in one transact()"
        )
    return None
