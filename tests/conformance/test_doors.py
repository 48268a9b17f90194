"""The suite's three doors, from an empty directory: what they run, what they refuse, and that they cost nobody else anything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from durastore.conformance.catalogue import catalogue
from durastore.conformance.report import Report
from durastore.conformance.runner import run
from durastore.errors import ConfigError

THIRD_PARTY = Path(__file__).parent / "thirdparty"
FEW = "claim_2 or claim_3_live"
"""Where the door is what is tested, a few tests will do."""


def execute(*command: str, cwd: Path, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DURASTORE", "PYTEST"))}
    clean |= {} if path is None else {"PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=300, check=False
    )


def suite(
    cwd: Path, *options: str, url: str = "memory://", path: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """The first door."""
    base = ("-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "durastore.conformance", "--durastore-url", url)
    return execute(*base, *options, cwd=cwd, path=path, **env)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's backend, installed as pip would, without network."""
    folder = tmp_path_factory.mktemp("installed")
    project = tmp_path_factory.mktemp("project") / "thirdparty"
    shutil.copytree(THIRD_PARTY, project)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(project)], check=True, timeout=120)
    return folder


@pytest.fixture
def broken(installed: Path, tmp_path: Path) -> Path:
    """The same backend with a fault: a refused claim is answered with a lease that is longer by one microsecond."""
    folder = tmp_path / "broken"
    shutil.copytree(installed, folder)
    source = folder / "durastore_folder" / "__init__.py"
    fault = (
        "\n_right = FolderBackend.claim\n"
        "def _wrong(self, request, *, now=None):\n"
        "    answer = _right(self, request, now=now)\n"
        "    from dataclasses import replace\n"
        "    return replace(answer, lease_left=answer.lease_left + 1) if hasattr(answer, 'lease_left') else answer\n"
        "FolderBackend.claim = _wrong\n"
    )
    source.write_text(source.read_text() + fault)
    return folder


def test_third_party_backend(installed: Path, tmp_path: Path) -> None:
    """The tutorial's backend, found through its entry point, is conformant, and its report says whose it is."""
    command = (
        "-m",
        "durastore.cli",
        "conformance",
        f"folder://{tmp_path}/store",
        "--report",
        "report.json",
        "--examples",
        "20",
    )
    done = execute(*command, cwd=tmp_path, path=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    report = Report.from_json((tmp_path / "report.json").read_text())
    assert report.conformant
    assert [result.clause for result in report.clauses] == list(catalogue())
    assert report.about["backend"] == "durastore_folder.FolderBackend (durastore-folder 0.1.0)"
    assert "conformant" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "store"}, "nothing else is left behind"


def test_first_door(tmp_path: Path) -> None:
    """``pytest --pyargs durastore.conformance`` from an empty directory: all clauses, and the report as Markdown."""
    done = suite(tmp_path, "--durastore-report", "out/report.md", "--durastore-examples", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(catalogue())} pass, 0 fail, 0 not run" in done.stdout
    assert (tmp_path / "out" / "report.md").read_text().count("| pass |") == len(catalogue())
    assert {path.name for path in tmp_path.iterdir()} - {".hypothesis"} == {"out"}


def test_first_door_needs_a_url(tmp_path: Path) -> None:
    """Without a URL nothing is skipped silently: it fails, and says what to give."""
    done = execute("-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "durastore.conformance", cwd=tmp_path)
    assert done.returncode not in (0, 5)
    assert "--durastore-url" in done.stdout + done.stderr


@pytest.mark.parametrize("door", ["first", "second", "third"])
def test_assertions_explain_themselves(door: str, broken: Path, tmp_path: Path) -> None:
    """Through each door a failed assertion shows both sides, and the exit code says that it failed."""
    url = f"folder://{tmp_path}/store"
    if door == "first":
        done = suite(tmp_path, "-k", FEW, url=url, path=broken)
    elif door == "second":
        program = f"from durastore.conformance import run; exit(run({url!r}, extra_args=['-k', {FEW!r}]).exit_code)"
        done = execute("-c", program, cwd=tmp_path, path=broken)
    else:
        third_door(tmp_path, f"with UrlHarness({url!r}) as harness:\n            yield harness")
        done = execute("-m", "pytest", "-p", "no:cacheprovider", "-k", FEW, cwd=tmp_path, path=broken)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lease_left" in done.stdout + done.stderr
    assert "assert Held(" in done.stdout + done.stderr


def third_door(folder: Path, harness: str, more: str = "pass") -> None:
    (folder / "test_mine.py").write_text(
        "import pytest\n"
        "from durastore.conformance import Conformance, UrlHarness, instead_of\n\n"
        "class TestMine(Conformance):\n"
        "    @pytest.fixture\n"
        "    def harness(self):\n"
        f"        {harness}\n\n"
        f"    {more}\n"
    )


MEMORY = "with UrlHarness('memory://') as harness:\n            yield harness"


def mine(folder: Path, more: str, *options: str) -> tuple[int, Report | None, str]:
    """The third door, with something more in the class; the exit code, the report and the output."""
    third_door(folder, MEMORY, more)
    report = folder / "report.json"
    done = execute("-m", "pytest", "-p", "no:cacheprovider", "--durastore-report", str(report), *options, cwd=folder)
    found = Report.from_json(report.read_text()) if report.exists() else None
    return done.returncode, found, done.stdout + done.stderr


def clause(report: Report | None, name: str) -> tuple[str, str]:
    assert report is not None
    (found,) = [result for result in report.clauses if result.clause == name]
    return found.status, found.reason


def test_third_door(tmp_path: Path) -> None:
    """A subclass with a harness runs every clause; spread over processes by xdist, the report is complete all the same."""
    code, report, output = mine(tmp_path, "examples = 5", "-n", "2")
    assert code == 0, output
    assert report is not None
    assert report.conformant
    assert (report.suite, report.store) == ("TestMine", "memory")


def test_declared_override(tmp_path: Path) -> None:
    """An override that says so counts, and the report says why."""
    more = (
        "@instead_of('CLAIM-2', reason='slow here')\n    def test_claim_2_committed_key_answers_its_result(self): pass"
    )
    code, report, output = mine(tmp_path, more, "-k", FEW)
    assert report is not None, output
    (result,) = [result for result in report.clauses if result.clause == "CLAIM-2"]
    assert result.status == "pass"
    assert "slow here" in result.overridden[0]
    assert "slow here" in report.to_text()
    assert "slow here" in report.to_markdown()
    assert code == 1, "the other clauses were left out"


def test_undeclared_override(tmp_path: Path) -> None:
    """An override that does not say so is an error before anything runs; one that comes later voids the report."""
    more = "def test_claim_2_committed_key_answers_its_result(self): pass"
    code, report, output = mine(tmp_path, more, "-k", FEW)
    assert code != 0
    assert "@instead_of" in output
    assert report is None or not report.conformant
    later = "pass\n\nTestMine.test_claim_2_committed_key_answers_its_result = lambda self: None"
    code, report, output = mine(tmp_path, later, "-k", FEW)
    assert code == 1
    assert report is not None
    assert any("@instead_of" in problem for problem in report.problems)


def test_removed_test(tmp_path: Path) -> None:
    """A test that is taken away is "not run"."""
    code, report, _ = mine(tmp_path, "pass\n\nTestMine.test_setup_1_setup_at_once = None", "-k", f"{FEW} or setup_1")
    assert code == 1
    assert clause(report, "SETUP-1")[0] == "not run"


@pytest.mark.parametrize("mark", ["skip(reason='not today')", "xfail(reason='known', strict=False)"])
def test_skipped_or_expected_to_fail(tmp_path: Path, mark: str) -> None:
    """A skip proves nothing, nor does an expected failure, whether it fails or passes."""
    test = "test_claim_2_committed_key_answers_its_result"
    more = f"pass\n\nTestMine.{test} = pytest.mark.{mark}(Conformance.{test})"
    code, report, output = mine(tmp_path, more, "-k", FEW)
    assert code == 1, output
    assert clause(report, "CLAIM-2")[0] == "not run"


def test_deselected(tmp_path: Path) -> None:
    """What ``-k`` leaves out is "not run", and the exit code says that the store is not conformant."""
    code, report, output = mine(tmp_path, "pass", "-k", FEW)
    assert code == 1, output
    assert clause(report, "CLAIM-2") == ("pass", "")
    status, reason = clause(report, "COMMIT-2")
    assert status == "not run"
    assert "deselected" in reason


def test_nothing_collected(tmp_path: Path) -> None:
    """Nothing collected is not conformant."""
    (tmp_path / "test_empty.py").write_text("")
    report = tmp_path / "report.json"
    done = execute("-m", "pytest", "-p", "no:cacheprovider", "--durastore-report", str(report), cwd=tmp_path)
    assert done.returncode != 0
    assert Report.from_json(report.read_text()).problems == ["nothing was collected"]


def test_failing_setup(tmp_path: Path) -> None:
    """A harness that raises fails every clause that it was needed for."""
    third_door(tmp_path, "raise RuntimeError('no store')\n        yield")
    report = tmp_path / "report.json"
    command = ("-m", "pytest", "-p", "no:cacheprovider", "-k", FEW, "--durastore-report", str(report))
    done = execute(*command, cwd=tmp_path)
    assert done.returncode == 1
    status, reason = clause(Report.from_json(report.read_text()), "CLAIM-2")
    assert status == "fail"
    assert "no store" in reason


def test_optimised_python(tmp_path: Path) -> None:
    """Under ``-O`` no assertion would fail: refused."""
    command = ("-O", "-m", "pytest", "--pyargs", "durastore.conformance", "--durastore-url", "memory://")
    done = execute(*command, cwd=tmp_path)
    assert done.returncode == 4
    assert "without -O" in done.stderr


def test_second_door_leaves_out_what_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` with a selection is not conformant; pytest's configuration and options of the user do not reach it."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    report = run("memory://", report="out.md", extra_args=["-k", FEW])
    assert (report.conformant, report.exit_code) == (False, 1)
    assert clause(report, "CLAIM-2") == ("pass", "")
    assert "NOT CONFORMANT" in (tmp_path / "out.md").read_text()


def test_second_door_refuses(installed: Path, tmp_path: Path) -> None:
    """A URL or a file name that is wrong is one clear line, not a report."""
    (tmp_path / "file").write_text("no folder")
    for url, options, code, said in (
        ("nosuch://x", (), 2, "unknown store scheme"),
        ("memory://?x=1", (), 2, "unknown option"),
        ("memory://", ("--report", "out.pdf"), 2, "ends in .txt, .json or .md"),
        ("folder://file", (), 5, "folder://file cannot be set up"),
    ):
        done = execute("-m", "durastore.cli", "conformance", url, *options, cwd=tmp_path, path=installed)
        assert done.returncode == code, done.stdout + done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_without_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pytest is not installed the error names the extra."""
    monkeypatch.setattr("durastore.conformance.runner.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'durastore\[test\]'"):
        run("memory://")


def test_reading_reports_needs_no_pytest(tmp_path: Path) -> None:
    """The command line and the matrix import neither pytest nor Hypothesis."""
    program = (
        "import sys, durastore.conformance.matrix, durastore.conformance.runner, durastore.cli.conformance;"
        "sys.exit(bool({'pytest', 'hypothesis'} & set(sys.modules)))"
    )
    assert execute("-c", program, cwd=tmp_path).returncode == 0


def test_others_pay_nothing(tmp_path: Path) -> None:
    """A pytest session that does not ask for the suite does not import durastore."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n"
        "def test_other():\n"
        "    assert [name for name in sys.modules if name.startswith('durastore')] == ['durastore_pytest']\n"
    )
    done = execute("-m", "pytest", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_password_stays_inside(installed: Path, tmp_path: Path) -> None:
    """A password in the URL is neither in the report nor in the output, though the driver says it."""
    folder = tmp_path / "leaky"
    shutil.copytree(installed, folder)
    source = folder / "durastore_folder" / "__init__.py"
    leak = "def connect(url):\n    raise RuntimeError(f'cannot reach {url.address}')\n"
    source.write_text(source.read_text().replace("def connect(", "def unused(") + leak)
    url = "folder://me:h%2Funter2@host/store"
    done = suite(tmp_path, "-k", FEW, "--tb=no", "--durastore-report", "r.json", url=url, path=folder)
    assert done.returncode == 1
    report = json.loads((tmp_path / "r.json").read_text())
    assert "unter2" not in json.dumps(report)
    assert "cannot reach me:***@host" in json.dumps(report)
