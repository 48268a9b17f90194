"""terraform/dynamodb, applied to emulators with Amazon's real provider.

moto stands for all of Amazon; where durastore itself runs, ministack stands for DynamoDB, since its transactions are isolated.
It does not tell how far back point-in-time recovery reaches, so drift is looked for on moto.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import durastore
from durastore import emulators, urls
from durastore_dynamodb import ACTIONS, OPTIONAL_ACTIONS, READ_ACTIONS, connect
from tests.terraform import aws
from tests.terraform.conftest import not_run
from tests.terraform.google import NotHere
from tests.terraform.modules import FOLDER, refusals
from tests.terraform.runner import Terraform
from tests.terraform.test_google import _messages, _one_run_each

boto3 = pytest.importorskip("boto3", reason="not run: boto3 is not installed")
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "eu-central-1"}
Open = Callable[[str], Terraform]


@pytest.fixture(scope="module")
def provider(program: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has Amazon's provider."""
    try:
        return aws.provider(program, FOLDER / "dynamodb" / "versions.tf", tmp_path_factory.mktemp("aws"))
    except NotHere as exc:
        not_run(f"no AWS provider: {exc}")


@pytest.fixture(scope="module")
def module(program: str, provider: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """A copy of the module, initialised, that reaches nothing."""
    return _copied(program, provider, tmp_path_factory.mktemp("module"), "")


def _copied(program: str, environment: dict[str, str], scratch: Path, folder: str) -> Terraform:
    shutil.copytree(
        FOLDER / "dynamodb", scratch / "dynamodb", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
    )
    terraform = Terraform(program, scratch / "dynamodb" / folder, environment)
    terraform("init", "-no-color")
    return terraform


def _server(name: str) -> Iterator[str]:
    """The endpoint of an emulator of our own: tables have fixed names."""
    try:
        server = emulators.start(name)
    except emulators.EmulatorNotRun as exc:
        not_run(str(exc))
    with server:
        yield parse_qs(urlsplit(server.url).query)["endpoint_url"][0]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    yield from _server("dynamodb-moto")


@pytest.fixture(scope="module")
def ministack() -> Iterator[str]:
    yield from _server("dynamodb")


@pytest.fixture(scope="module")
def on_moto(provider: dict[str, str], moto: str) -> dict[str, str]:
    """The environment in which Amazon is moto."""
    return {
        **provider,
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "3",
    }


def applied_state(terraform: Terraform) -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs and managed resources (``TYPE.NAME[KEY]``), without the seconds that reading Amazon's schema takes."""
    pulled = json.loads(terraform("state", "pull"))
    resources = {
        f"{one['type']}.{one['name']}[{instance.get('index_key', '')}]": instance["attributes"]
        for one in pulled["resources"]
        for instance in one["instances"]
        if one["mode"] == "managed"
    }
    return {name: output["value"] for name, output in pulled["outputs"].items()}, resources


def described(endpoint: str, table: str) -> dict[str, Any]:
    """What DynamoDB says of a table, as far as the backend depends on it."""
    client = boto3.client("dynamodb", endpoint_url=endpoint, **CREDENTIALS)
    found = client.describe_table(TableName=table)["Table"]
    indexes = {
        index["IndexName"]: (index["KeySchema"], index["Projection"])
        for index in found.get("GlobalSecondaryIndexes", [])
    }
    ttl = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    return {
        "keys": found["KeySchema"],
        "attributes": sorted((one["AttributeName"], one["AttributeType"]) for one in found["AttributeDefinitions"]),
        "indexes": indexes,
        "local indexes": found.get("LocalSecondaryIndexes", []),
        "ttl": (ttl["TimeToLiveStatus"], ttl.get("AttributeName")),
    }


def test_module_is_valid(module: Terraform) -> None:
    """``terraform validate`` knows every argument of every resource, and warns of nothing."""
    said = json.loads(module("validate", "-json"))
    assert (said["valid"], said["diagnostics"]) == (True, [])


def test_module_passes_its_own_tests(module: Terraform) -> None:
    """``terraform test`` with a mocked provider: defaults, options, scaling, and what is refused."""
    done = module.attempt("test", "-no-color")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    ran = {path.name for path in (FOLDER / "dynamodb" / "tests").glob("*.tftest.hcl")}
    assert ran >= {"defaults.tftest.hcl", "examples.tftest.hcl", "provisioned.tftest.hcl", "refusals.tftest.hcl"}
    assert all(f"tests/{name}... pass" in done.stdout for name in ran), done.stdout


def test_every_validation_refuses_something(module: Terraform) -> None:
    """Without the line that expects them, the runs of ``refusals.tftest.hcl`` fail with every message of `variables.tf`."""
    alone = module.folder / "alone"
    alone.mkdir()
    for name, text in _one_run_each(module.folder / "tests" / "refusals.tftest.hcl"):
        (alone / f"{name}.tftest.hcl").write_text(text)
    try:
        said = module.attempt("test", "-json", "-test-directory=alone").stdout
    finally:
        shutil.rmtree(alone)
    assert _messages(said) == set(refusals("dynamodb"))


@pytest.fixture(scope="module", params=["minimal", "complete"])
def applied(
    request: pytest.FixtureRequest, program: str, on_moto: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Terraform:
    """An example that is applied to moto; it goes with the server, since its table is protected."""
    terraform = _copied(program, on_moto, tmp_path_factory.mktemp("examples"), f"examples/{request.param}")
    terraform("apply", "-auto-approve", "-no-color")
    return terraform


def test_applied_example_does_not_drift(applied: Terraform) -> None:
    """A second plan changes nothing."""
    done = applied.attempt("plan", "-detailed-exitcode", "-no-color")
    assert done.returncode == 0, done.stdout


def test_url_is_one_that_durastore_opens(applied: Terraform) -> None:
    """`store_url` passes the parser, and the backend's own reading of it where there is one."""
    url = applied_state(applied)[0]["store_url"]
    parsed = urls.parse(url)
    assert parsed.scheme == "dynamodb"
    assert parsed.options == {"region": "eu-central-1"}
    assert str(connect(parsed).target.table) in url


def test_policies_reach_this_table_alone(applied: Terraform) -> None:
    """Every statement names actions one by one, the table and its indexes, or the key by way of DynamoDB."""
    found = applied_state(applied)[1]
    (table,) = [one["arn"] for address, one in found.items() if address.startswith("aws_dynamodb_table.")]
    policies = [json.loads(one["policy"]) for address, one in found.items() if address.startswith("aws_iam_policy.")]
    assert len(policies) == 2
    for statement in [statement for policy in policies for statement in policy["Statement"]]:
        named = [statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"]
        if statement["Sid"] == "Key":
            assert statement["Condition"]["StringEquals"] == {"kms:ViaService": "dynamodb.eu-central-1.amazonaws.com"}
            assert "*" not in named
        else:
            assert all(one == table or one.startswith(f"{table}/index/") for one in named)
            assert not [action for action in statement["Action"] if "*" in action]


def test_destroy_respects_deletion_protection(
    program: str, on_moto: dict[str, str], moto: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It fails while the table is protected, and leaves it; once protection is applied away, it goes."""
    terraform = _copied(program, on_moto, tmp_path_factory.mktemp("protected"), "")
    name, options = "-var=name=protected", ("-auto-approve", "-no-color")
    terraform("apply", *options, name)
    done = terraform.attempt("destroy", *options, name)
    assert done.returncode == 1
    assert "can't be deleted" in " ".join(done.stderr.split())
    assert described(moto, "protected")["ttl"][0] == "ENABLED"
    terraform("apply", *options, name, "-var=deletion_protection=false")
    terraform("destroy", *options, name, "-var=deletion_protection=false")
    assert terraform("state", "list") == ""


# With the backend


@pytest.fixture(scope="module")
def made(program: str, on_moto: dict[str, str], ministack: str, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """The module, applied where durastore can run: DynamoDB is ministack, the rest is moto."""
    environment = {**on_moto, "AWS_ENDPOINT_URL_DYNAMODB": ministack}
    terraform = _copied(program, environment, tmp_path_factory.mktemp("made"), "")
    terraform("apply", "-auto-approve", "-no-color", "-var=name=made-by-terraform")
    return terraform


def _at(endpoint: str, table: str) -> str:
    return f"dynamodb://{table}?region=eu-central-1&endpoint_url={endpoint}"


def test_setup_and_terraform_make_the_same_table(made: Terraform, ministack: str) -> None:
    """Keys, attributes, indexes and TTL are the same, so that what is developed on one runs on the other."""
    with durastore.open(_at(ministack, "made-by-setup")) as store:
        store.setup()
    assert described(ministack, "made-by-terraform") == described(ministack, "made-by-setup")


def test_terraforms_table_passes_the_suite(made: Terraform, ministack: str) -> None:
    """The whole conformance suite, on the table as Terraform made it and without `setup`."""
    from durastore.conformance.runner import run

    report = run(_at(ministack, "made-by-terraform"), setup=False, examples=5)
    assert report.exit_code == 0, report.to_text()


def test_policies_allow_what_the_backend_calls_and_no_more(
    made: Terraform, ministack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers' policy is what a round through all verbs calls; the readers' what looking calls."""
    from botocore.client import BaseClient

    called: set[str] = set()
    real = BaseClient._make_api_call

    def record(client: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        called.update(_actions(operation, arguments))
        return real(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", record)
    with durastore.open(_at(ministack, "made-by-terraform"), namespace="rights") as store:
        _write(store)
        written, called = called, set()
        _look(store)
    resources = applied_state(made)[1]
    allowed = {
        name: set(json.loads(resources[f"aws_iam_policy.this[{name}]"]["policy"])["Statement"][0]["Action"])
        for name in ("reader", "writer")
    }
    assert called == {*READ_ACTIONS}
    assert written | called == {*ACTIONS, *OPTIONAL_ACTIONS}
    assert allowed == {"reader": {*READ_ACTIONS, *OPTIONAL_ACTIONS}, "writer": {*ACTIONS, *OPTIONAL_ACTIONS}}


def _actions(operation: str, arguments: dict[str, Any]) -> set[str]:
    """A transaction is allowed by the actions in it."""
    if operation != "TransactWriteItems":
        return {f"dynamodb:{operation}"}
    kinds = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
    return {f"dynamodb:{kinds[kind]}" for item in arguments["TransactItems"] for kind in item}


def _write(store: durastore.Store) -> None:
    run = store.checkpoint("run")
    large = "x" * 500_000
    run.run_once("small", lambda: 1, retain=1)
    run.run_once("large", lambda: [large, list(range(100_000))])
    run.save_progress(1, {"large": large})
    run.run_once("late", lambda: 1, progress=(0, {}))  # behind what is saved
    durastore.run_agent(range(5), store.checkpoint("agent"), lambda item: item)
    with suppress(ZeroDivisionError):
        run.run_once("raises", lambda: 1 / 0)
    store.forget("small")
    store.forget_run("run")
    store.sweep()
    store.check()  # which asks whether it may write


def _look(store: durastore.Store) -> None:
    list(store.records(run_id="agent"))
    list(store.records(state="claimed"))
    list(store.records(prefix="agent"))
    list(store.runs())
    assert store.record("agent:step:0") is not None
    list(store.records())
