"""moto's server with one request at a time. Run by the Python of moto's own virtual environment: ``moto_locked.py HOST PORT``.

Its TransactWriteItems checks and writes without isolation: of 8 processes that count up in transactions, some lose updates.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any


def serialised(app: Callable[..., Iterable[bytes]]) -> Callable[..., list[bytes]]:
    """The WSGI app behind one lock, its answer read to the end under it."""
    lock = Lock()

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with lock:
            return list(app(environ, start_response))

    return call


def main() -> None:
    # Neither is installed where this is checked.
    from moto.moto_server.werkzeug_app import (  # type: ignore[import-not-found,unused-ignore]
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple  # type: ignore[import-not-found,unused-ignore]

    class KeepAlive(MotoRequestHandler):  # type: ignore[misc,unused-ignore]
        protocol_version = "HTTP/1.1"

    app = serialised(DomainDispatcherApplication(create_backend_app))
    run_simple(sys.argv[1], int(sys.argv[2]), app, threaded=True, request_handler=KeepAlive)


if __name__ == "__main__":
    main()
