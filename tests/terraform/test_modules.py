"""The modules are siblings: one taste, one set of inputs, one output that `durastore.open` takes."""

from __future__ import annotations

import pytest

from tests.terraform.modules import FOLDER, MODULES, blocks, readme_with_tables
from tests.terraform.runner import Terraform

SHARED = ("name", "labels", "deletion_protection", "backup", "principals")
GOOGLE = ("enable_api", "encryption_key", "project", "service_account")
each_module = pytest.mark.parametrize("module", MODULES)


def test_all_three_are_here() -> None:
    """The tests of this folder look at every module."""
    assert MODULES == ["cloudsql", "dynamodb", "firestore"]


@each_module
def test_source_is_formatted(module: str, program: str) -> None:
    """``terraform fmt`` would change nothing, in the module, its examples and its tests."""
    done = Terraform(program, FOLDER / module).attempt("fmt", "-check", "-diff", "-recursive")
    assert done.returncode == 0, done.stdout


@each_module
@pytest.mark.parametrize("kind", ["variable", "output"])
def test_variables_and_outputs_are_in_order(module: str, kind: str) -> None:
    """They are found where one looks for them, and each says what it is."""
    found = blocks(module, kind)
    assert found
    assert [block.name for block in found] == sorted(block.name for block in found)
    assert [block.name for block in found if not block.description.endswith(".")] == []


def interface(module: str, names: tuple[str, ...]) -> dict[str, tuple[str | None, ...]]:
    """Type, default and description of some inputs."""
    known = {block.name: block for block in blocks(module, "variable")}
    return {name: tuple(known[name].argument(what) for what in ("type", "default", "description")) for name in names}


@each_module
def test_siblings_have_the_same_inputs(module: str) -> None:
    """The five inputs that all have are the same in type, default and words."""
    assert interface(module, SHARED) == interface("firestore", SHARED)


def test_siblings_on_google_cloud_have_more_in_common() -> None:
    """Service account, project and key, too; only the API that is enabled has another name."""
    firestore, cloudsql = (interface(module, GOOGLE) for module in ("firestore", "cloudsql"))
    firestore["enable_api"], cloudsql["enable_api"] = firestore["enable_api"][:2], cloudsql["enable_api"][:2]
    assert firestore == cloudsql


@each_module
def test_objects_say_what_they_default_to(module: str) -> None:
    """No attribute of an object has to be given, so that a caller names only what is special."""
    bare = [
        line.strip()
        for block in blocks(module, "variable")
        if (block.argument("type") or "").startswith("object")
        for line in block.body.partition("object({")[2].partition("})")[0].splitlines()
        if line.strip() and "optional(" not in line
    ]
    assert bare == []


@each_module
def test_every_module_has_the_url(module: str) -> None:
    """`store_url` is the output that all have."""
    assert "store_url" in [block.name for block in blocks(module, "output")]


@each_module
def test_readme_has_the_tables_of_the_source(module: str) -> None:
    """Inputs and outputs are documented as they are; ``python -m tests.terraform.modules`` writes the tables."""
    readme = (FOLDER / module / "README.md").read_text()
    assert "<!-- tables -->" in readme
    assert readme == readme_with_tables(module)
