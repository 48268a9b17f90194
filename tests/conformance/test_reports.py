"""Reports, the catalogue behind them, and the matrix made of them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from durastore.conformance.catalogue import catalogue, references
from durastore.conformance.matrix import BEGIN, END, insert, main, matrix
from durastore.conformance.recording import Outcome, Recording
from durastore.conformance.rendering import without_password
from durastore.conformance.report import ClauseResult, Report, Status
from durastore.conformance.suite import Conformance, required

HOSTILE = "\x1b[2J\x9b31m\u202e| `x` <script>alert(1)</script> [a](javascript:b) *b* \ud800 \r\n# head \\| &amp;"


def report(status: Status = "pass", *, store: str = "memory", reason: str = "", **more: object) -> Report:
    clauses = tuple(ClauseResult(clause, text, "pass") for clause, text in catalogue().items())
    clauses = (replace(clauses[0], status=status, reason=reason), *clauses[1:])
    return replace(Report("TestStore", {"store": store, "url": f"{store}://"}, clauses), **more)  # type: ignore[arg-type]  # by name


def test_every_clause_has_a_test() -> None:
    """Whatever the contract's docstrings state is tested, and whatever they mention is stated."""
    assert {clause for clauses in required().values() for clause in clauses} == set(catalogue())
    assert references() == set(catalogue())
    assert all(len(text) > 20 for text in catalogue().values())


def test_every_test_says_what_it_holds() -> None:
    """Each test is named after its first clause, and its docstring says which promise it holds."""
    for name, clauses in required().items():
        assert clauses, name
        assert name.startswith(f"test_{clauses[0].lower().replace('-', '_')}_"), name
        assert len(inspect.getdoc(getattr(Conformance, name)) or "") > 20, name


def test_conformant_means_every_clause() -> None:
    """One clause that failed or was not run, a problem, or no clauses at all: not conformant."""
    assert report().conformant
    assert report().exit_code == 0
    for bad in (report("fail"), report("not run"), report(problems=("x",)), replace(report(), clauses=())):
        assert not bad.conformant
        assert bad.exit_code == 1


def test_json_round_trip() -> None:
    """A report survives JSON, and its verdict is judged anew from what it holds."""
    first = report("fail", reason=HOSTILE)
    again = Report.from_json(first.to_json())
    assert again.to_json() == first.to_json()
    forged = Report.from_json(first.to_json().replace('"conformant": false', '"conformant": true'))
    assert not forged.conformant
    for wrong in ("[]", "{}", '{"format": 99}', "no json"):
        with pytest.raises(ValueError):
            Report.from_json(wrong)


def test_hostile_strings_are_shown_not_obeyed() -> None:
    """Escape sequences, bidirectional marks, HTML and Markdown in texts of others come out as plain characters."""
    bad = report("fail", reason=HOSTILE, store=HOSTILE, problems=(HOSTILE,), notes=(HOSTILE,))
    for text in (bad.to_text(), bad.to_markdown(), matrix([bad])):
        text.encode()
        assert all(mark.isprintable() or mark == "\n" for mark in text)
    page = bad.to_markdown()
    assert "<script" not in page
    assert "](javascript" not in page
    rows = [line for line in page.splitlines() if line.startswith("| TIME-1")]
    assert len(rows) == 1
    assert rows[0].count("|") == 5, "no cell ends early"


def test_passwords_are_blacked_out() -> None:
    """In whatever form the driver says it."""
    url = "postgresql://me:p%40ss%2Fword@host/db"
    for said in ("p@ss/word", "p%40ss%2Fword"):
        assert without_password(f"cannot log in as me with {said}", url) == "cannot log in as me with ***"
    assert without_password("plain", "memory://") == without_password("plain", None) == "plain"


def test_the_worst_outcome_counts() -> None:
    """Of a test's phases and parameters, and of a clause's tests, the worst decides; a missing test is "not run"."""
    recording = Recording("TestStore")
    for name, clauses in required().items():
        recording.note(Outcome(name, clauses, "pass"))
    assert recording.report(0).conformant
    name = "test_claim_3_rivals_at_once"
    recording.note(Outcome(name, ("CLAIM-3",), "fail", "two won"))
    recording.note(Outcome(name, ("CLAIM-3",), "pass"))
    recording.note(Outcome(name, ("CLAIM-3",), "not run", "teardown"))
    (result,) = [result for result in recording.report(0).clauses if result.clause == "CLAIM-3"]
    assert (result.status, result.reason) == ("fail", f"{name}: two won")
    assert [r.clause for r in recording.report(0).clauses if r.status != "pass"] == ["CLAIM-3"]
    alone = Recording("TestStore")
    alone.note(Outcome(name, ("CLAIM-3",), "pass"))
    assert {r.status for r in alone.report(0).clauses} == {"not run"}, "CLAIM-3 has another test"


def test_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each group, one column for each store; it goes between the markers of a page, again and again."""
    files = []
    for store, status in (("sqlite", "pass"), ("firestore", "fail"), ("dynamodb", "not run")):
        files.append(tmp_path / f"{store}.json")
        files[-1].write_text(report(status, store=store).to_json())  # type: ignore[arg-type]  # one of three words
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\nrest\n")
    assert main([*map(str, files), "--into", str(page)]) == 1, "not all are conformant"
    assert main([*map(str, files), "--into", str(page)]) == 1
    table = page.read_text()
    assert table.count("| clauses | dynamodb | firestore | sqlite |") == 1
    assert "old" not in table
    assert table.endswith(f"{END}\nrest\n")
    assert "(fails: TIME-1)" in table
    assert main([str(files[0])]) == 0
    assert "**conformant**" in capsys.readouterr().out


def test_matrix_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page without markers, a file that is no report, or none: one line, exit code 2, and nothing is written."""
    good, bad, page = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "README.md"
    good.write_text(report().to_json())
    bad.write_text("{}")
    page.write_text("no markers")
    for arguments in ([str(good), "--into", str(page)], [str(bad)], [str(tmp_path / "none.json")]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert page.read_text() == "no markers"
    with pytest.raises(ValueError, match="conformance:begin"):
        insert("page", "table")
