"""What the library logs, as lines on stderr: who is waited for, and renewals that fail."""

from __future__ import annotations

import logging

from durastore.cli.exits import tell

__all__ = ["show_notices"]


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage())


def show_notices() -> None:
    """Show them from now on."""
    logger = logging.getLogger("durastore")
    if not any(isinstance(handler, _Notices) for handler in logger.handlers):
        logger.addHandler(_Notices())
    logger.setLevel(logging.INFO)
    logger.propagate = False
