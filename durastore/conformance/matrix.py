"""The matrix of clause groups by store, generated from reports: ``python -m durastore.conformance.matrix REPORT.json …``.

With ``--into FILE`` it goes between the markers ``<!-- conformance:begin -->`` and ``<!-- conformance:end -->`` of that file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from durastore.conformance.catalogue import catalogue, group_of
from durastore.conformance.rendering import plain_markdown
from durastore.conformance.report import ClauseResult, Report

__all__ = ["BEGIN", "END", "insert", "main", "matrix"]

BEGIN, END = "<!-- conformance:begin -->", "<!-- conformance:end -->"


def matrix(reports: Sequence[Report]) -> str:
    """A Markdown table: how many clauses of each group pass on each store."""
    ordered = sorted(reports, key=lambda report: report.store)
    groups = list(dict.fromkeys(map(group_of, catalogue())))
    heads = ["clauses", *(plain_markdown(report.store) for report in ordered)]
    rows = [[group, *(_cell(report.groups().get(group, [])) for report in ordered)] for group in groups]
    rows.append(["**all**", *(_verdict(report) for report in ordered)])
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def _cell(results: Sequence[ClauseResult]) -> str:
    passed = sum(result.status == "pass" for result in results)
    failed = [result.clause for result in results if result.status == "fail"]
    if not results or not (passed or failed):
        return "not run"
    text = f"{passed} of {len(results)}" if passed < len(results) else f"{passed} ✓"
    return f"{text} (fails: {', '.join(failed)})" if failed else text


def _verdict(report: Report) -> str:
    counts = f"{report.count('pass')} of {len(report.clauses)}"
    return f"**{'conformant' if report.conformant else 'not conformant'}**, {counts}"


def insert(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with the text between its markers. Raises `ValueError` when they are missing."""
    head, begun, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the file needs the lines {begin} and {end}")
    return f"{head}{begin}\n{text}{end}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: done; 1: one of the stores is not conformant; 2: a file that is no report or has no markers."""
    parser = argparse.ArgumentParser(prog="python -m durastore.conformance.matrix", description=__doc__)
    parser.add_argument(
        "reports", nargs="+", type=Path, help="JSON reports of `durastore conformance URL --report FILE.json`"
    )
    parser.add_argument("--into", type=Path, help="the file that holds the markers; without it the table is printed")
    given = parser.parse_args(arguments)
    try:
        reports = [Report.from_json(path.read_text(encoding="utf-8")) for path in given.reports]
        table = matrix(reports)
        if given.into is None:
            sys.stdout.write(table)
        else:
            given.into.write_text(insert(given.into.read_text(encoding="utf-8"), table), encoding="utf-8")
    except (OSError, ValueError, TypeError, KeyError) as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 2
    return 0 if all(report.conformant for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
