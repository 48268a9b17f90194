"""The SQL of terraform/cloudsql, run on a real server: what the users of a store can do there, and what they cannot."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pymysql
import pytest

import durastore
from durastore_cloudsql.tables import Tables
from tests.terraform.modules import FOLDER
from tests.terraform.runner import Terraform

PASSWORD = "by-iam-on-the-cloud"
_ROOT = """
module "store" {{
  source          = "./cloudsql"
  name            = "durastore"
  project         = "acme-prod"
  region          = "europe-west3"
  engine          = "{engine}"
  database        = "{database}"
  network         = {{ private_network = "projects/acme-prod/global/networks/default" }}
  principals      = {{ readers = ["{reader}"], writers = ["{writer}"] }}
  service_account = {{ create = false }}
}}
output "grants" {{ value = module.store.grants }}
output "store_url" {{ value = module.store.store_url }}
"""


@dataclass(frozen=True)
class Site:
    """A database whose tables an administrator made, before the module's SQL; and who will use it."""

    admin: str
    """The administrator's URL of that database."""
    database: str
    writer: str
    reader: str
    execute: Callable[[str], None]
    """As the administrator, in that database."""

    def url(self, user: str) -> str:
        parts = urlsplit(self.admin)
        return f"{parts.scheme}://{quote(user, safe='')}:{PASSWORD}@{parts.hostname}:{parts.port}/{self.database}"


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Before Terraform's SQL: users that may log in, tables that they may not touch."""
    make = _postgresql if request.param == "postgresql" else _mysql
    yield from make(request.getfixturevalue(f"{request.param}_url"))


def _postgresql(server: str) -> Iterator[Site]:
    database = f"tf_{uuid.uuid4().hex[:8]}"
    writer, reader, stranger = (f"{name}.{database}@acme-prod.iam" for name in ("batch", "operators", "stranger"))
    admin = urlsplit(server)._replace(path=f"/{database}").geturl()

    def execute(sql: str, url: str = admin) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in filter(str.strip, sql.splitlines()):
                connection.execute(statement)

    users = (writer, reader, stranger)
    execute(
        "\n".join(
            [f"CREATE DATABASE {database}", *(f"CREATE ROLE \"{user}\" LOGIN PASSWORD '{PASSWORD}'" for user in users)]
        ),
        server,
    )
    with durastore.open(admin) as store:
        store.setup()
    execute("CREATE TABLE salaries (amount integer)")
    yield Site(admin, database, writer, reader, execute)
    execute("\n".join([f"DROP DATABASE {database} WITH (FORCE)", *(f'DROP ROLE "{user}"' for user in users)]), server)


def _mysql(server: str) -> Iterator[Site]:
    database = f"tf_{uuid.uuid4().hex[:8]}"
    writer, reader, stranger = (f"{name}.{database}" for name in ("batch", "operators", "stranger"))
    admin = urlsplit(server)._replace(path=f"/{database}").geturl()
    parts = urlsplit(server)

    def execute(sql: str) -> None:
        login: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "password": parts.password,
        }
        with pymysql.connect(**login) as connection, connection.cursor() as cursor:
            for statement in filter(str.strip, sql.splitlines()):
                cursor.execute(statement)

    users = (writer, reader, stranger)
    execute(
        "\n".join(
            [f"CREATE DATABASE {database}", *(f"CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'" for user in users)]
        )
    )
    with durastore.open(admin) as store:
        store.setup()
    execute(f"CREATE TABLE {database}.salaries (amount integer)")
    yield Site(admin, database, writer, reader, execute)
    execute("\n".join([f"DROP DATABASE {database}", *(f"DROP USER '{user}'@'%'" for user in users)]))


@pytest.fixture(scope="module")
def granted(
    site: Site, program: str, google_stand_in: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Site:
    """After it: the SQL is the module's output, applied for principals with the names of this site."""
    folder = tmp_path_factory.mktemp("grants")
    shutil.copytree(FOLDER / "cloudsql", folder / "cloudsql")
    postgresql = site.admin.startswith("postgresql")
    ends = (".gserviceaccount.com", "") if postgresql else ("@acme-prod.iam.gserviceaccount.com", "@acme-prod.iam")
    root = _ROOT.format(
        engine="postgresql" if postgresql else "mysql",
        database=site.database,
        writer=f"serviceAccount:{site.writer}{ends[0]}",
        reader=f"group:{site.reader}{ends[1]}",
    )
    (folder / "main.tf").write_text(root)
    terraform = Terraform(program, folder, google_stand_in)
    terraform("init", "-no-color")
    terraform("apply", "-auto-approve", "-no-color")
    outputs = terraform.state()["outputs"]
    assert f"://{quote(site.writer, safe='')}@" in outputs["store_url"]
    site.execute(outputs["grants"])
    return site


def refused(site: Site, user: str, sql: str) -> bool:
    """Does the server refuse this statement to the user, for want of rights?"""
    parts = urlsplit(site.url(user))
    try:
        if parts.scheme == "postgresql":
            with psycopg.connect(site.url(user)) as connection:
                connection.execute(sql)
        else:
            login: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "user": user, "password": PASSWORD}
            with pymysql.connect(**login, database=site.database) as other, other.cursor() as cursor:
                cursor.execute(sql)
    except (psycopg.errors.InsufficientPrivilege, psycopg.OperationalError, pymysql.OperationalError) as exc:
        return any(
            word in str(exc) for word in ("permission denied", "must be owner", "denied to user", "denied for user")
        )
    return False


def test_writer_needs_no_more_than_the_grants(granted: Site) -> None:
    """Every verb works for the user of `store_url`: large results, progress, listings, forgetting, sweeping, the doctor."""
    with durastore.open(granted.url(granted.writer)) as store:
        run = store.checkpoint("run")
        large = "x" * 3_000_000
        assert run.run_once("large", lambda: [large, uuid.uuid4().hex * 100_000], progress=(1, {})).status == "executed"
        assert run.run_once("large", lambda: None).status == "skipped"
        run.save_progress(2, {"at": 2})
        assert store.checkpoint("run").load()[0] == 2
        assert [record.key for record in store.records(prefix="la")] == ["large"]
        assert [finding for finding in store.check() if not finding.ok] == []
        assert store.forget("large")
        store.forget_run("run")
        store.sweep()


def test_writer_has_rights_on_durastores_tables_only(granted: Site) -> None:
    """Not on others in the same database, not to make or change tables, not to say that the schema is another."""
    for sql in (
        "SELECT * FROM salaries",
        "CREATE TABLE mine (id integer)",
        "DROP TABLE durastore_records",
        "TRUNCATE TABLE durastore_runs",
        "UPDATE durastore_version SET version = 99",
    ):
        assert refused(granted, granted.writer, sql), sql


def test_reader_only_looks(granted: Site) -> None:
    """A reader lists what there is, and changes nothing."""
    with durastore.open(granted.url(granted.writer)) as store:
        store.checkpoint("run").run_once("key", lambda: 1)
    with durastore.open(granted.url(granted.reader)) as store:
        assert [record.key for record in store.records(prefix="key")] == ["key"]
        with pytest.raises(durastore.DurastoreError):
            store.checkpoint("run").run_once("other", lambda: 2)
    for table in ("records", "runs", "chunks"):
        assert refused(granted, granted.reader, f"DELETE FROM durastore_{table}"), table


def test_others_are_left_outside(granted: Site) -> None:
    """A user of the instance whom nobody granted anything doesn't even get into the database."""
    stranger = granted.writer.replace("batch", "stranger")
    assert refused(granted, stranger, "SELECT 1")


def test_grants_name_every_table_that_the_backend_has() -> None:
    """A table that a later schema adds needs a grant here."""
    routines = {"claim", "commit", "done"}
    tables = {word for word in Tables().words if not word.endswith("_index")} - routines
    text = (FOLDER / "cloudsql" / "grants.tf").read_text()
    writer = text.partition("writer = {")[2].partition("}")[0]
    assert {line.split("=")[0].strip() for line in writer.splitlines() if "=" in line} == tables
