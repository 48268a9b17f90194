"""What holds for both modules on Google Cloud: valid, proven with mocks, applied to the stand-in without drift, then gone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import urls
from tests.terraform.modules import FOLDER, refusals
from tests.terraform.runner import Terraform

Open = Callable[[str], Terraform]
MODULES = ("cloudsql", "firestore")
EXAMPLES = [
    str(path.parent.relative_to(FOLDER)) for module in MODULES for path in FOLDER.glob(f"{module}/examples/*/main.tf")
]
PROJECT = "-var=project=acme-prod"
each_module = pytest.mark.parametrize("module", MODULES)
each_example = pytest.mark.parametrize("example", sorted(EXAMPLES))


@each_module
def test_module_is_valid(module: str, google_module: Open) -> None:
    """``terraform validate`` knows every argument of every resource, and warns of nothing."""
    said = json.loads(google_module(module)("validate", "-json"))
    assert (said["valid"], said["diagnostics"]) == (True, [])


@each_module
def test_module_passes_its_own_tests(module: str, google_module: Open) -> None:
    """``terraform test`` with a mocked provider: defaults, options, examples, and what is refused."""
    done = google_module(module).attempt("test", "-no-color")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    ran = {path.name for path in (FOLDER / module / "tests").glob("*.tftest.hcl")}
    assert ran >= {"defaults.tftest.hcl", "examples.tftest.hcl", "refusals.tftest.hcl"}
    assert all(f"tests/{name}... pass" in done.stdout for name in ran), done.stdout


@each_module
def test_every_validation_refuses_something(module: str, google_module: Open) -> None:
    """Without the line that expects them, the runs of ``refusals.tftest.hcl`` fail with every message that `variables.tf` has."""
    terraform = google_module(module)
    alone = terraform.folder / "alone"
    alone.mkdir()
    for name, text in _one_run_each(terraform.folder / "tests" / "refusals.tftest.hcl"):
        (alone / f"{name}.tftest.hcl").write_text(text)
    try:
        said = terraform.attempt("test", "-json", "-test-directory=alone").stdout
    finally:
        shutil.rmtree(alone)
    assert _messages(said) == set(refusals(module))


def _one_run_each(path: Path) -> Iterator[tuple[str, str]]:
    head, *runs = re.split(r'^(?=run ")', path.read_text(), flags=re.MULTILINE)
    for run in runs:
        yield (
            run.split('"')[1],
            head + re.sub(r"^  expect_failures = \[.*?\]\n", "", run, flags=re.MULTILINE | re.DOTALL),
        )


def _messages(said: str) -> set[str]:
    events = [json.loads(line) for line in said.splitlines()]
    details = [event["diagnostic"]["detail"] for event in events if event["type"] == "diagnostic"]
    return {detail.partition("\n\nThis was checked by the validation rule")[0] for detail in details}


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def applied(request: pytest.FixtureRequest, google_example: Open) -> Iterator[Terraform]:
    """An example that is applied to the stand-in, and destroyed in the end."""
    terraform = google_example(request.param)
    terraform("apply", "-auto-approve", "-no-color", PROJECT)
    yield terraform
    terraform("destroy", "-auto-approve", "-no-color", PROJECT)
    assert terraform("state", "list") == ""


def test_applied_example_does_not_drift(applied: Terraform) -> None:
    """A second plan changes nothing; it is destroyed without a trace when the tests of it end."""
    done = applied.attempt("plan", "-detailed-exitcode", "-no-color", PROJECT)
    assert done.returncode == 0, done.stdout


def test_url_is_one_that_durastore_opens(applied: Terraform, monkeypatch: pytest.MonkeyPatch) -> None:
    """`store_url` passes the parser and the backend's own reading of it; nothing is sent until the store is used."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")  # no credentials are looked for
    url = applied.state()["outputs"]["store_url"]
    parsed = urls.parse(url)
    assert parsed.scheme in ("firestore", "cloudsql+mysql", "cloudsql+postgresql")
    with durastore.open(url) as store:
        assert store is not None


def test_state_holds_no_secret(applied: Terraform) -> None:
    """Clients log in by IAM: there is no password to leak from the state."""
    assert _named("password", applied.state()["resources"]) == []


def _named(word: str, tree: Any) -> list[str]:
    if isinstance(tree, list):
        return [found for one in tree for found in _named(word, one)]
    if not isinstance(tree, dict):
        return []
    mine = [str(value) for name, value in tree.items() if name.endswith(word) and isinstance(value, str) and value]
    return mine + [found for value in tree.values() for found in _named(word, value)]
