"""Setting up: by many at once, with names of one's own, with few rights."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import durastore
from durastore import emulators, urls
from durastore.errors import ConfigError, SchemaError

from .requests import granted, request

PROCESSES = 8


@pytest.fixture
def admin(server: emulators.Server) -> Iterator[Any]:
    """Statements with all rights."""
    backend = urls.connect(urls.parse(server.url))
    with backend._pool.single() as connection:
        yield connection.cursor()
    backend.close()


@pytest.fixture
def fresh(server: emulators.Server) -> str:
    """The URL of tables that are not there yet."""
    return f"{server.url}?table_prefix=t{uuid.uuid4().hex[:12]}_"


def test_by_eight_processes_at_once(fresh: str) -> None:
    """All set up an empty database in the same moment and go on to work; all succeed."""
    script = f"""
        import sys, durastore
        store = durastore.open({fresh!r})
        print("ready", flush=True)
        sys.stdin.readline()
        store.setup()
        print(store.checkpoint("run").run_once("key", lambda: "value", wait=60).value)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    started = [
        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)  # -1: a pipe
        for _ in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate(timeout=120) for process in started]
    assert results == [("value\n", "")] * PROCESSES


def test_before_it(fresh: str) -> None:
    """Tables that are missing are a `SchemaError` that says what to run; setting up mends it."""
    with durastore.open(fresh) as store:
        for call in (
            lambda: store.checkpoint("run").run_once("key", lambda: 1),
            lambda: store.checkpoint("run").load(),
        ):
            with pytest.raises(SchemaError, match="durastore init"):
                call()
        assert not {finding.name: finding.ok for finding in store.check()}["schema"]
        store.setup()
        assert store.checkpoint("run").run_once("key", lambda: 1).status == "executed"


def test_rights_on_rows_are_enough(fresh: str, admin: Any, kind: str, server: emulators.Server) -> None:
    """After setting up, a role that may only read and write rows does everything, `setup` included."""
    prefix = fresh.partition("=")[2]
    role = f"r{uuid.uuid4().hex[:12]}"
    with durastore.open(fresh, create=True):
        pass
    for statement in _grants(kind, role, prefix):
        admin.execute(statement)
    url = fresh.replace("durastore:durastore@", f"{role}:secret@", 1)
    with durastore.open(url) as store:
        store.setup()
        summary = durastore.run_agent(range(5), store.checkpoint("run"), lambda item: "x" * 400_000)
        assert summary.executed == 5
        assert store.checkpoint("run").transact("tx", lambda tx: 1).status == "executed"
        assert store.forget_run("run") is not None
        store.sweep()
        assert all(finding.ok for finding in store.check()), list(store.check())
        with pytest.raises(ConfigError, match=r"grant|right"):
            durastore.open(url.replace(prefix, f"{prefix}x"), create=True)


def test_a_right_that_is_missing(fresh: str, admin: Any, kind: str) -> None:
    """The doctor names it, and a call that needs it is a `ConfigError`."""
    prefix = fresh.partition("=")[2]
    role = f"r{uuid.uuid4().hex[:12]}"
    with durastore.open(fresh, create=True):
        pass
    for statement in _grants(kind, role, prefix):
        admin.execute(statement.replace("SELECT, INSERT, UPDATE, DELETE ON", "SELECT ON"))
    with durastore.open(fresh.replace("durastore:durastore@", f"{role}:secret@", 1)) as store:
        found = {finding.name: finding for finding in store.check()}
        assert not found["rights"].ok
        assert f"INSERT on {prefix}records" in found["rights"].detail
        with pytest.raises(ConfigError, match="grant SELECT"):
            store.checkpoint("run").run_once("key", lambda: 1)


def _grants(kind: str, role: str, prefix: str) -> list[str]:
    tables = [f"{prefix}{table}" for table in ("records", "runs", "chunks")]
    if kind == "postgresql":
        return [
            f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
            f"GRANT SELECT ON {prefix}version TO {role}",
            *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}" for table in tables),
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ]
    return [
        f"CREATE USER {role}@'%' IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON durastore.{prefix}version TO {role}@'%'",
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON durastore.{table} TO {role}@'%'" for table in tables),
    ]


def test_a_schema_of_ones_own(server: emulators.Server, kind: str, admin: Any) -> None:
    """`schema` is created on PostgreSQL and is another database on MySQL; its tables are nobody else's."""
    name = f"s{uuid.uuid4().hex[:12]}"
    if kind == "mysql":
        admin.execute(f"CREATE DATABASE {name}")
    with durastore.open(server.url, schema=name, create=True) as store:
        store.checkpoint("run").run_once("key", lambda: 1)
    admin.execute(f"SELECT COUNT(*) FROM {name}.durastore_records")
    assert admin.fetchone()[0] == 1


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a;DROP TABLE x", "A", "a" * 31, 'a"b', "ä"])
@pytest.mark.parametrize("option", ["schema", "table_prefix"])
def test_names_that_are_none(server: emulators.Server, option: str, name: str) -> None:
    """Nothing but a plain name gets into a statement."""
    with pytest.raises(ConfigError, match=option):
        durastore.open(server.url, **{option: name})


def test_a_newer_schema(fresh: str, admin: Any) -> None:
    """Tables of a newer durastore are left alone."""
    with durastore.open(fresh, create=True) as store:
        admin.execute(f"INSERT INTO {fresh.partition('=')[2]}version VALUES (999)")
        admin.connection.commit()
        with pytest.raises(SchemaError, match="upgrade durastore"):
            store.setup()


def test_set_up_again_after_it_broke_off(fresh: str, admin: Any, kind: str) -> None:
    """What an earlier attempt left behind does not stop the next one."""
    prefix = fresh.partition("=")[2]
    with durastore.open(fresh, create=True):
        pass
    for table in ("records", "runs", "version") if kind == "postgresql" else ("runs", "version"):
        admin.execute(f"DROP TABLE {prefix}{table} CASCADE")
    if kind == "postgresql":
        admin.execute(f"DROP TABLE {prefix}chunks")
    with durastore.open(fresh, create=True) as store:
        assert store.checkpoint("run").run_once("key", lambda: 1).status == "executed"


def test_a_database_that_is_not_utf8(postgresql: str, servers: Any) -> None:
    """The doctor says so, and a key that it cannot hold is a `ConfigError`, not another key."""
    import psycopg

    name = f"d{uuid.uuid4().hex[:12]}"
    with psycopg.connect(servers("postgresql").url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with durastore.open(servers("postgresql").url.rpartition("/")[0] + f"/{name}", create=True) as store:
        assert not {finding.name: finding.ok for finding in store.check()}["encoding"]
        with pytest.raises(ConfigError, match="UTF8"):
            store.checkpoint("run").run_once("snow ☃", lambda: 1)


def test_keys_are_looked_up_in_the_primary_key(fresh: str, admin: Any, kind: str) -> None:
    """Before there are statistics, too: any other index would make a claim slower with each record."""
    prefix = fresh.partition("=")[2]
    with durastore.open(fresh, create=True):
        pass
    key = "key" if kind == "postgresql" else "`key`"
    admin.execute(f"EXPLAIN SELECT * FROM {prefix}records WHERE namespace = 'n' AND {key} = 'k'")
    plan = " ".join(str(part) for row in admin.fetchall() for part in row)
    if kind == "postgresql":
        assert f"{prefix}records_pkey" in plan, plan
    else:  # MySQL shows a row that is not there without a plan
        assert "PRIMARY" in plan or "const table" in plan or "Impossible WHERE" in plan, plan


def test_plans_that_were_made_on_an_empty_table(servers: Any) -> None:
    """An empty table that was vacuumed invites sequential scans, whose plans would be kept: a step makes none."""
    import psycopg

    prefix = f"t{uuid.uuid4().hex[:12]}_"
    url = f"{servers('postgresql').url}?table_prefix={prefix}"
    with (
        durastore.open(url, create=True) as store,
        psycopg.connect(servers("postgresql").url, autocommit=True) as admin,
    ):
        durastore.run_agent(range(20), store.checkpoint("run"), lambda item: item)
        for table in ("records", "runs", "chunks"):
            admin.execute(f"DELETE FROM {prefix}{table}")
            admin.execute(f"VACUUM ANALYZE {prefix}{table}")
    scans = f"SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = '{prefix}records'"
    with psycopg.connect(servers("postgresql").url, autocommit=True) as admin:
        [(before, _)] = admin.execute(scans).fetchall()
        with durastore.open(url) as store:  # its sessions tell their counts when they end
            for step in range(50):
                store.checkpoint("other").run_once(f"key-{step % 40}", lambda: 1)
            durastore.run_agent(range(20), store.checkpoint("run"), lambda item: item)
        give_up = time.monotonic() + 20
        while (found := admin.execute(scans).fetchall())[0][1] < 100 and time.monotonic() < give_up:
            time.sleep(0.1)
    assert found[0][1] >= 100
    assert found[0][0] == before


def test_a_record_without_a_lease_is_live(store: durastore.Store) -> None:
    """A claim stored without a lease, by hand say, is held until it is resolved; it is neither free nor in doubt."""
    granted(store.backend.claim(request("key")))
    namespace = store.backend._namespace
    with store.backend._pool.transaction() as connection:
        connection.exec_driver_sql(
            f"UPDATE durastore_records SET lease = NULL, expires_at = NULL WHERE namespace = '{namespace}'"
        )
    answer = store.backend.claim(request("key", nonce="another"))
    assert (answer.lease_left, answer.in_doubt) == (None, False)
    assert [record.state for record in store.records()] == ["claimed"]
    assert store.resolve("key", retry=True, force=True).state == "abandoned"
