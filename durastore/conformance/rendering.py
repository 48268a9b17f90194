"""Reports as text and as Markdown. Whatever a store or an exception put into them is shown, never obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten
from urllib.parse import unquote, urlsplit

from durastore.conformance.report import ClauseResult, Report

__all__ = ["markdown", "plain", "plain_markdown", "text", "verdict", "without_password"]

_TEXT_CHARACTERS_MAX = 90
_REASON_CHARACTERS_MAX = 400
_MARKUP = {ord(mark): f"&#{ord(mark)};" for mark in "&<>|`*_[]\\!~#@"}


def plain(value: str) -> str:
    """One line without control, bidirectional or otherwise invisible characters: they are shown by their escapes."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in value)


def plain_markdown(value: str) -> str:
    """As `plain`, and no markup either."""
    return plain(value).translate(_MARKUP)


def without_password(text: str, url: str | None) -> str:
    """The text with the password of a URL blacked out, should a driver have put it there."""
    password = urlsplit(url).password if url and "@" in url else None
    for form in {password, unquote(password or "")} - {None, ""}:
        text = text.replace(str(form), "***")
    return text


def _reason(result: ClauseResult) -> str:
    parts = [result.reason, *(f"overridden: {reason}" for reason in result.overridden)]
    return "; ".join(part[:_REASON_CHARACTERS_MAX] for part in parts if part)


def verdict(report: Report) -> str:
    """The result in one line."""
    word = "conformant" if report.conformant else "NOT CONFORMANT"
    counts = f"{report.count('pass')} pass, {report.count('fail')} fail, {report.count('not run')} not run"
    return f"{word}: {counts} of {len(report.clauses)} clauses in {report.seconds:.1f} s"


def text(report: Report) -> str:
    """See `Report.to_text`."""
    return "\n".join(_text_lines(report)) + "\n"


def _text_lines(report: Report) -> Iterator[str]:
    yield f"durastore conformance of {plain(report.store)}: {verdict(report)}"
    for name, value in report.about.items():
        yield f"  {plain(name)}: {plain(value)}"
    yield from (f"  note: {plain(note)}" for note in report.notes)
    yield from (f"  PROBLEM: {plain(problem)}" for problem in report.problems)
    for result in report.clauses:
        status = result.status if result.status == "pass" else result.status.upper()
        yield f"  {result.clause:<14} {status:<8} {shorten(plain(result.text), _TEXT_CHARACTERS_MAX, placeholder=' …')}"
        if _reason(result):
            yield f"  {'':14} → {plain(_reason(result))}"


def markdown(report: Report) -> str:
    """See `Report.to_markdown`."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: Report) -> Iterator[str]:
    yield f"# Conformance of {plain_markdown(report.store)}"
    yield f"\n**{verdict(report)}**\n"
    yield from (f"- {plain_markdown(name)}: {plain_markdown(value)}" for name, value in report.about.items())
    yield from (f"- note: {plain_markdown(note)}" for note in report.notes)
    yield from (f"- **problem**: {plain_markdown(problem)}" for problem in report.problems)
    yield "\n| clause | result | says | why not |\n|---|---|---|---|"
    for result in report.clauses:
        cells = (result.clause, result.status, result.text, _reason(result))
        yield f"| {' | '.join(map(plain_markdown, cells))} |"
