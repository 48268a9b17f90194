"""``durastore.aio``: the same surface, awaited.

The protocol is the one of :mod:`durastore.protocol`; only its driver and the thinnest callers are doubled. Calls of the store run
in at most `THREADS` threads of the store's own, with a connection each, whatever the number of tasks; waiting takes none. A side
effect may be a coroutine function, which runs in the task, or a plain function, which runs in one of `EFFECT_THREADS` threads, so
that it cannot block the event loop.

Cancellation: a call of the store that is under way is waited for before the cancellation goes on, so that a claim is given back
and a commit is not torn. A plain function cannot be cancelled: its end is waited for, its result committed, and then the
cancellation goes on.
"""

from __future__ import annotations

from durastore.aio.agents import run_agent
from durastore.aio.checkpoint import Checkpoint, ManualClaim
from durastore.aio.driving import EFFECT_THREADS, THREADS
from durastore.aio.store import Store, open  # noqa: A004

__all__ = ["EFFECT_THREADS", "THREADS", "Checkpoint", "ManualClaim", "Store", "open", "run_agent"]
