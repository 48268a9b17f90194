"""``python -m tests.bench.peers``: what a step costs with durastore and with its peers, in one run.

Everybody runs the same step, which does nothing, in turns of 25 with the raw driver's own durable write: ratios hold where
absolute times drift. Peers are measured if they are installed, and named if they are not; ``make peers`` installs them into
a virtual environment of their own (``tests/bench/peers/requirements.txt``). Nothing is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from durastore.emulators import EmulatorNotRun

from .comparing import Comparison, Row, compare
from .peer import ONCE, STEP
from .places import SERVERS, place

STEPS = {"sqlite": 1050, "postgresql": 1050, "dynamodb": 350}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=list(SERVERS), default=list(SERVERS))
    parser.add_argument("--steps", type=int, help="samples of each kind, in full blocks of 25")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    parser.add_argument("--report", type=Path, help="a file for the JSON, beside what is printed")
    options = parser.parse_args()
    compared = [found for store in options.stores if (found := _compare(store, options.steps or STEPS[store]))]
    found = {**_machine(), "stores": [asdict(one) for one in compared]}
    text = json.dumps(found, indent=1) + "\n"
    if options.report:
        options.report.write_text(text, encoding="utf-8")
    if options.json:
        sys.stdout.write(text)
    else:
        print("\n\n".join(table(one) for one in compared))
    return 1 if len(compared) < len(options.stores) or any(one.failed for one in compared) else 0


def _machine() -> dict[str, Any]:
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _compare(store: str, steps: int) -> Comparison | None:
    try:
        with place(store) as where:
            return compare(where, store, steps, lambda text: _tell(f"{store}: {text}"))
    except EmulatorNotRun as exc:
        print(f"{store}: not run: {exc}", file=sys.stderr)
        return None
    finally:
        _tell("")


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def table(found: Comparison) -> str:
    """What a person reads."""
    lines = [
        f"{found.server}, {found.steps} samples",
        f"{'':14}{'':44}{'median µs':>10}{'p95 µs':>10}{'floors':>8}{'x ours':>8}",
        *(_line(row) for row in found.rows),
        *(f"{row.by}: {row.remark}" for row in found.rows if row.remark and row.like in (STEP, ONCE)),
        *(f"not installed: {name}" for name in found.not_installed),
        *(f"FAILED: {name}: {why}" for name, why in found.failed.items()),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    times = "" if row.times is None else f"{row.times:8.2f}"
    return f"{row.by:14}{row.what:44}{row.median:10.1f}{row.p95:10.1f}{row.floors:8.2f}{times}"


if __name__ == "__main__":
    sys.exit(main())
