"""Terraform and its providers: found once a session, else the tests that need them are "not run", with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from durastore import emulators
from tests.terraform import google
from tests.terraform.modules import FOLDER
from tests.terraform.runner import Terraform

Open = Callable[[str], Terraform]


def not_run(why: str) -> NoReturn:
    """Skip with a reason, or fail where ``DURASTORE_REQUIRE`` names ``terraform``."""
    if emulators.required("terraform"):
        pytest.fail(f"{why} (and DURASTORE_REQUIRE names terraform)", pytrace=False)
    pytest.skip(f"not run: terraform: {why}")


@pytest.fixture(scope="session")
def program() -> str:
    found = shutil.which("terraform")
    return found or not_run("there is no terraform on PATH; see developer.hashicorp.com/terraform/install")


@pytest.fixture(scope="session")
def google_provider(program: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has a provider to validate and to mock: the real one, else the stand-in."""
    scratch = tmp_path_factory.mktemp("google")
    try:
        return google.real(program, FOLDER / "firestore" / "versions.tf", scratch)
    except google.NotHere as exc:
        why = str(exc)
    try:
        return google.stand_in(scratch)
    except google.NotHere as exc:
        not_run(f"no Google provider: {why}; no stand-in either: {exc}")


@pytest.fixture(scope="session")
def google_stand_in(program: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has the stand-in, to apply without a cloud."""
    try:
        return google.stand_in(tmp_path_factory.mktemp("stand-in"))
    except google.NotHere as exc:
        not_run(f"nothing to apply Google's resources to: {exc}")


@pytest.fixture(scope="session")
def google_module(program: str, google_provider: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Open:
    """A copy of a module, initialised."""
    return _opener(program, google_provider, tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="session")
def google_example(program: str, google_stand_in: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Open:
    """A copy of an example (``MODULE/examples/NAME``), initialised with the stand-in."""
    return _opener(program, google_stand_in, tmp_path_factory.mktemp("examples"))


def _opener(program: str, environment: dict[str, str], scratch: Path) -> Open:
    opened: dict[str, Terraform] = {}

    def at(folder: str) -> Terraform:
        if folder not in opened:
            module = folder.partition("/")[0]
            copied = scratch / module
            if not copied.exists():
                shutil.copytree(FOLDER / module, copied, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
            opened[folder] = Terraform(program, scratch / folder, environment)
            opened[folder]("init", "-no-color")
        return opened[folder]

    return at
