"""The proof on DynamoDB: the demo ends with the same table as on SQLite."""

from __future__ import annotations

import json
import subprocess
import sys


def rows(*options: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "durastore.cli", "demo", "--json", "--limit", "20", "--kills", "2", "--seed", "7"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found]


def test_demo(url: str) -> None:
    """Workers killed on the same schedule: the same deliveries, duplicates and redone effects in every mode, none lost."""
    here, there = rows("--url", url), rows()
    assert here == there
    assert [row["duplicates"] for row in here if row["mode"] in ("probe", "transact")] == [0, 0]
