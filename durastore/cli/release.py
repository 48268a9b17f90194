"""Let go of the claims of a durastore that was killed: ``python -m durastore.cli.release``, started by the guard.

Standard input: a JSON document for each claim, each with the URL of its store. A claim becomes "in doubt", since how far its
command got is not known; a store that cannot be reached lets it lapse instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from durastore.cli.options import to_look
from durastore.contract import Grant

__all__ = ["described", "main"]


def described(url: str, grant: Grant) -> dict[str, Any]:
    """What has to be known to let go of a claim."""
    return {
        "url": url,
        "key": grant.key,
        "run_id": grant.run_id,
        "owner": grant.owner,
        "nonce": grant.nonce,
        "token": grant.token,
        "attempt": grant.attempt,
        "lease": grant.lease,
    }


def main() -> None:
    """Let go of them one by one."""
    for line in sys.stdin:
        fields = json.loads(line)
        with to_look(fields.pop("url")) as store:
            error = "durastore was killed, and its command with it"
            store.call("abandon", store.backend.abandon, Grant(**fields), error=error, in_doubt=True)


if __name__ == "__main__":
    main()
