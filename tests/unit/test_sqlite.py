"""What is peculiar to SQLite: files, locks, syncs, forks, faults. The shared clauses are in the conformance suite."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import durastore
from durastore.contract import ClaimRequest, Granted, Held, Payload
from durastore.keys import after_prefix
from durastore_sqlite import SQLiteBackend
from durastore_sqlite.backend import _statements as statements
from durastore_sqlite.connections import Connections
from durastore_sqlite.connections import _Job as Job
from durastore_sqlite.schema import _migrations as migrations
from durastore_sqlite.schema import migrate

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[durastore.Store]:
    with durastore.open(f"sqlite:///{path}") as opened:
        yield opened


def backend_of(store: durastore.Store) -> SQLiteBackend:
    backend = store.backend
    assert isinstance(backend, SQLiteBackend)
    return backend


def asked(key: str, nonce: str, **more: Any) -> ClaimRequest:
    return ClaimRequest(key, "run", "owner", nonce, 10 * SECOND, **more)


# Durability and cost


class Traced:
    """The statements of this thread's connection since the last look, without what they were given."""

    def __init__(self, backend: SQLiteBackend) -> None:
        self._found: list[str] = []
        backend._connections.get().set_trace_callback(lambda text: self._found.append(text.split()[0]))

    def take(self) -> list[str]:
        found, self._found[:] = list(self._found), []
        return found


def test_syncs(store: durastore.Store) -> None:
    """An executed step has two durable commits, a skipped one none, a fused step of a run one."""
    ckpt = store.checkpoint("run")
    traced = Traced(backend_of(store))
    ckpt.run_once("key", lambda: 1)
    assert traced.take().count("COMMIT") == 2
    ckpt.run_once("key", lambda: 1)
    assert traced.take() == ["SELECT"]
    durastore.run_agent(list(range(10)), ckpt, lambda item: item)
    assert traced.take().count("COMMIT") == 11  # the first claim, then one for each step


def test_settings(store: durastore.Store, path: Path) -> None:
    """WAL and synchronous=FULL, on every connection: durable on return."""
    connection = backend_of(store)._connections.get()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_held_and_committed_write_nothing(store: durastore.Store) -> None:
    """Asking for a key that is held or done takes no lock: it answers while somebody else holds the write lock."""
    backend = backend_of(store)
    assert isinstance(backend.claim(asked("held", "a")), Granted)
    other = backend._connections.open("rw")
    other.execute("BEGIN IMMEDIATE")
    assert not isinstance(backend.claim(asked("held", "b")), Granted)
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize(
    "name", ["record", "records", "records_of_run", "open_records", "run", "runs", "chunks", "orphans"]
)
def test_listings_have_an_index(store: durastore.Store, name: str) -> None:
    """No statement scans a whole table."""
    connection = backend_of(store)._connections.get()
    sql = statements()[name]
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",) * sql.count("?")).fetchall()
    assert not [row for row in plan if row[3].startswith("SCAN")], plan


def test_retention_has_an_index(store: durastore.Store) -> None:
    """The sweep finds what is past retention without looking at the rest."""
    connection = backend_of(store)._connections.get()
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statements()['past_retention']}", ("x", 1, 1)).fetchall()
    assert "durastore_records_retention" in plan[0][3]


def test_group_commit(store: durastore.Store) -> None:
    """Writes of threads that wait at the same time land in one transaction, and a refusal among them spoils none."""
    backend = backend_of(store)
    connections = backend._connections
    grants = [backend.claim(asked(f"key-{number}", f"nonce-{number}")) for number in range(8)]
    rounds: list[int] = []
    whole = connections.transaction
    connections.transaction = lambda work: (rounds.append(1), whole(work))[1]  # type: ignore[method-assign]
    failed: list[Exception] = []

    def commit(number: int) -> None:
        grant = grants[number].grant
        try:
            backend.commit(grant, result=Payload(b"json\n1"))
        except durastore.ClaimLost as exc:
            failed.append(exc)

    lost = backend.read(["key-7"])[0]
    backend.resolve(lost, nonce="other", result=None, now=lost.expires_at + 1)
    rounds.clear()
    with connections._turn:
        threads = [threading.Thread(target=commit, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while len(connections._waiting) < 8:
            pass
    for thread in threads:
        thread.join()
    assert len(rounds) == 1
    assert len(failed) == 1
    assert [record.state for record in backend.read([f"key-{n}" for n in range(8)])] == ["committed"] * 7 + [
        "abandoned"
    ]


def test_interrupt_of_a_thread_that_writes_for_others(store: durastore.Store) -> None:
    """Ctrl-C in the thread whose transaction carries the writes of others is its own: theirs land, once, and are answered."""
    connections = backend_of(store)._connections
    ckpt = store.checkpoint("run")
    answers: list[Any] = []

    def neighbour(number: int) -> None:
        answers.append(ckpt.run_once(f"key-{number}", lambda: number))

    threads = [threading.Thread(target=neighbour, args=(number,)) for number in range(4)]

    def interrupted(_connection: Any) -> None:
        raise KeyboardInterrupt

    with connections._turn:
        for thread in threads:
            thread.start()
        while len(connections._waiting) < len(threads):
            time.sleep(0.001)
        connections._waiting.append(Job(interrupted))
        with pytest.raises(KeyboardInterrupt):
            connections._run_waiting()
        connections._waiting.pop()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == [(number, "executed") for number in range(4)]
    assert len(connections._waiting) == 0
    assert {record.state for record in store.records()} == {"committed"}


def interrupted_at(place: int, call: Any) -> bool:
    """Run `call`, with Ctrl-C just before the nth instruction of the functions that begin and end transactions."""
    codes = {Connections.transaction.__code__, migrate.__code__}
    seen = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal seen
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "line"):  # some Pythons give lines alone here
            seen += 1
            if seen == place:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_interrupt_at_every_instruction_of_a_write(store: durastore.Store) -> None:
    """Wherever Ctrl-C hits a write, it is what the caller sees, and the thread's next write works."""
    ckpt = store.checkpoint("run")
    place = 1
    while interrupted_at(place, partial(ckpt.save_progress, place, None)):
        assert not backend_of(store)._connections.get().in_transaction
        assert ckpt.save_progress(place, None).step == place
        place += 1
    assert place > 5


def test_interrupt_at_every_instruction_of_the_setup(tmp_path: Path) -> None:
    """Wherever Ctrl-C hits the making of the tables, it is what the caller sees, and the next setup ends it."""
    place = 1
    while interrupted_at(place, SQLiteBackend(path := tmp_path / f"{place}.db", "").setup):
        with durastore.open(f"sqlite:///{path}") as store:
            assert store.checkpoint("run").run_once("key", lambda: 1).status == "executed"
        place += 1
    assert place > 5


def test_prefix_bounds() -> None:
    """The first string after all with a prefix, without surrogates and at the end of the alphabet."""
    assert after_prefix("a") == "b"
    assert after_prefix("a\ud7ff") == "a\ue000"
    assert after_prefix("a\U0010ffff") == "b"
    assert after_prefix("") == after_prefix("\U0010ffff") == "\U0010ffff" * 257


# Files


def test_looking_creates_nothing(path: Path) -> None:
    """`create=false` touches nothing: a missing file is an error that says how to make it."""
    with durastore.open(f"sqlite:///{path}?create=false") as store:
        with pytest.raises(durastore.SchemaError, match="durastore init"):
            list(store.records())
        assert not store.check()[0].ok
    assert not path.exists()


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    """The folder must be there; the error names it."""
    with pytest.raises(durastore.ConfigError, match=r"folder .*nowhere"):
        durastore.open(f"sqlite:///{tmp_path}/nowhere/agent.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/file.db"])
def test_no_file(url: str) -> None:
    """A URL that names no file is refused, with the way to write one."""
    with pytest.raises(durastore.ConfigError, match=r"sqlite:////absolute\.db"):
        durastore.open(url)


def test_odd_names(tmp_path: Path) -> None:
    """File names with spaces, percent signs, question marks and hashes work, percent-encoded."""
    with durastore.open(f"sqlite:///{tmp_path}/a%20b%3Fc%23d%25.db") as store:
        store.checkpoint("run").run_once("key", lambda: 1)
    assert (tmp_path / "a b?c#d%.db").exists()


def test_corrupt_file(path: Path) -> None:
    """A file that is no database is refused, and left as it is."""
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(durastore.SchemaError, match="damaged"):
        durastore.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"this is no database" * 100


def test_newer_schema(store: durastore.Store, path: Path) -> None:
    """A file written by a newer durastore is refused, not downgraded."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE durastore_schema SET version = 999")
    with pytest.raises(durastore.SchemaError, match="upgrade durastore"):
        durastore.open(f"sqlite:///{path}")


def test_beside_an_application(path: Path) -> None:
    """The tables live beside an application's own, whose `user_version` stays its own."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id)")
        connection.execute("PRAGMA user_version = 7")
    with durastore.open(f"sqlite:///{path}") as store:
        store.checkpoint("run").transact("key", lambda tx: tx.execute("INSERT INTO orders VALUES (1)").rowcount)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        assert connection.execute("SELECT * FROM orders").fetchall() == [(1,)]


def test_full_disk(store: durastore.Store) -> None:
    """A full disk is one clear error; what was committed stays, and the run goes on once there is room."""
    ckpt = store.checkpoint("run")
    ckpt.run_once("before", lambda: "kept")
    connection = backend_of(store)._connections.get()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    store.deadlines.update(commit=0.05, put_chunks=0.05)
    with pytest.raises(durastore.StoreUnavailable, match="disk is full"):
        ckpt.run_once("during", lambda: "x" * 60_000)
    assert ckpt.run_once("before", lambda: "again") == ("kept", "skipped")
    connection.execute("PRAGMA max_page_count = 1000000")
    assert ckpt.run_once("after", lambda: "x" * 60_000).status == "executed"


def test_file_size_limit(tmp_path: Path) -> None:
    """The operating system's refusal to let the file grow is told as well, by one line, and loses nothing."""
    program = (
        "import durastore, resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"store = durastore.open('sqlite:///{tmp_path}/agent.db')\n"
        "ckpt = store.checkpoint('run')\n"
        "ckpt.run_once('before', lambda: 1)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "store.deadlines.update(claim=0.05, commit=0.05, put_chunks=0.05)\n"
        "try:\n"
        "    for n in range(100): ckpt.run_once(f'key-{n}', lambda: 'x' * 60_000)\n"
        "except durastore.StoreUnavailable as exc:\n"
        "    print('refused', 'disk' in str(exc))\n"
        "print(ckpt.run_once('before', lambda: 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["refused True", "Outcome(value=1, status='skipped')"], done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert hasattr(signal, "SIGXFSZ")


def test_too_many_open_files(tmp_path: Path) -> None:
    """A thread that cannot open the file for lack of descriptors waits for one: that is nothing of the file's rights."""
    program = (
        "import durastore, os, resource, threading, time\n"
        f"store = durastore.open('sqlite:///{tmp_path}/agent.db')\n"
        "ckpt = store.checkpoint('run')\n"
        "ckpt.run_once('before', lambda: 1)\n"
        "taken = []\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "def take():\n"
        "    try:\n"
        "        while True: taken.append(os.open(os.devnull, os.O_RDONLY))\n"
        "    except OSError: pass\n"
        "def give():\n"
        "    while taken: os.close(taken.pop())\n"
        "def other():\n"
        "    store.deadlines['claim'] = 0.05\n"
        "    try: ckpt.run_once('key', lambda: 2)\n"
        "    except durastore.StoreUnavailable as exc: print('refused', 'ulimit -n' in str(exc))\n"
        "    store.deadlines['claim'] = 30\n"
        "    threading.Timer(0.2, give).start()\n"
        "    print(ckpt.run_once('key', lambda: 2))\n"
        "thread = threading.Thread(target=other)\n"
        "import tenacity, random, concurrent.futures\n"
        "take()\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["refused True", "Outcome(value=2, status='executed')"], done.stderr


def test_a_folder_without_rights(tmp_path: Path) -> None:
    """A new file in a folder that may not be written is a mistake in the configuration, and the message names the folder."""
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    for folder in list(shut.parents)[:4]:  # pytest's own, which are for their owner alone
        folder.chmod(folder.stat().st_mode | 0o111)
    code = f"""
import os, durastore, durastore_sqlite.backend, durastore_sqlite.schema, durastore.codec
if os.geteuid() == 0:
    durastore.open("sqlite:///{tmp_path}/warm.db").close()  # imports what is imported late
    os.seteuid(65534)
try:
    durastore.open("sqlite:///{shut}/agent.db")
except durastore.ConfigError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert f"{shut}: no file can be made in this folder" in done.stdout, done.stderr
    assert not list(shut.iterdir())


def test_read_only(store: durastore.Store) -> None:
    """Where SQLite may not write, looking works and a write is refused by one line."""
    ckpt = store.checkpoint("run")
    ckpt.run_once("before", lambda: 1)
    backend_of(store)._connections.get().execute("PRAGMA query_only = ON")
    assert ckpt.run_once("before", lambda: 2) == (1, "skipped")
    with pytest.raises(durastore.ConfigError, match="read-only"):
        ckpt.run_once("key", lambda: 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("database is locked", durastore.StoreUnavailable),
        ("database table is locked", durastore.StoreUnavailable),
        ("database or disk is full", durastore.StoreUnavailable),
        ("disk I/O error", durastore.StoreUnavailable),
        ("attempt to write a readonly database", durastore.ConfigError),
        ("database disk image is malformed", durastore.SchemaError),
        ("file is not a database", durastore.SchemaError),
        ("no such table: durastore_records", durastore.SchemaError),
        ("unable to open database file", durastore.ConfigError),
    ],
)
def test_classification(store: durastore.Store, text: str, kind: type[Exception]) -> None:
    """Each of SQLite's texts means one kind of error, named by the file."""
    error = store.backend.classify(sqlite3.OperationalError(text))
    assert type(error) is kind
    assert "agent.db" in str(error)


def test_errors_of_others(store: durastore.Store) -> None:
    """What is not the store's passes: an application's own missing table, any other exception."""
    assert store.backend.classify(ValueError("locked")) is None
    with pytest.raises(sqlite3.OperationalError, match="no such table: mine"):
        store.checkpoint("run").transact("key", lambda tx: tx.execute("INSERT INTO mine VALUES (1)"))
    assert store.record("key").state == "abandoned"


# Processes and threads


def _open_and_run(url: str, number: int) -> None:
    with durastore.open(url) as store:
        store.checkpoint("run").run_once(f"key-{number}", lambda: number)


def test_cold_file(path: Path) -> None:
    """Eight processes open a file that is not there at the same time; all succeed."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_open_and_run, args=(f"sqlite:///{path}", number)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 8
    with durastore.open(f"sqlite:///{path}") as store:
        assert len(list(store.records())) == 8


def test_fork(store: durastore.Store) -> None:
    """A forked child works on connections of its own, and its end does not disturb the parent's."""
    ckpt = store.checkpoint("run")
    ckpt.run_once("parent", lambda: 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            done = ckpt.run_once("child", os.getpid)
            code = 0 if done.status == "executed" and ckpt.run_once("parent", lambda: 2).status == "skipped" else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert ckpt.run_once("child", lambda: 0) == (child, "skipped")
    assert ckpt.run_once("later", lambda: 3).status == "executed"


def test_ended_threads_leave_no_connection(store: durastore.Store) -> None:
    """A thread's connection is closed when the thread ends."""
    ckpt = store.checkpoint("run")
    for number in range(20):
        thread = threading.Thread(target=ckpt.run_once, args=(f"key-{number}", lambda: 1))
        thread.start()
        thread.join()
    assert len(backend_of(store)._connections._held) <= 1


def test_lock_that_stays(store: durastore.Store, path: Path) -> None:
    """A write lock that somebody keeps is waited for until the deadline, then named."""
    backend = backend_of(store)
    backend._connections._busy_timeout = 0.01
    store.deadlines.update(claim=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(durastore.StoreUnavailable, match="holds the write lock"):
        store.checkpoint("run").run_once("key", lambda: 1)
    other.execute("ROLLBACK")
    other.close()
    assert store.checkpoint("run").run_once("key", lambda: 1).status == "executed"


def test_closed(store: durastore.Store) -> None:
    """A closed store says so."""
    store.close()
    with pytest.raises(durastore.ConfigError, match="closed"):
        store.record("key")


# transact


def test_transact_that_ends_its_transaction(store: durastore.Store) -> None:
    """An effect that commits by itself is found out, and its key is not marked as done."""
    ckpt = store.checkpoint("run")
    with pytest.raises(durastore.ConfigError, match="leave commit and rollback"):
        ckpt.transact("key", lambda tx: tx.execute("COMMIT") and None)
    assert store.record("key").state == "abandoned"


def test_transact_that_calls_the_store(store: durastore.Store) -> None:
    """An effect that calls the store inside its transaction is told at once; nothing hangs."""
    ckpt = store.checkpoint("run")
    with pytest.raises(durastore.ConfigError, match="through tx alone"):
        ckpt.transact("key", lambda _tx: ckpt.run_once("inner", lambda: 1).value)
    assert store.record("inner") is None


def test_transact_large_result(store: durastore.Store) -> None:
    """A result in chunks lands with its transaction, and goes with it."""
    ckpt = store.checkpoint("run")
    large = os.urandom(300_000).hex()
    assert ckpt.transact("key", lambda _tx: large).value == large
    assert store.record("key").result == large

    def fail(_tx: sqlite3.Connection) -> Any:
        return object()

    with pytest.raises(durastore.PayloadError):
        ckpt.transact("other", fail)
    assert store.record("other").state == "abandoned"


def test_migrations_are_numbered() -> None:
    """Migrations count from 1 without a gap."""
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_record_without_a_lease_is_live(store: durastore.Store) -> None:
    """A claim stored without a lease, by hand say, is held until it is resolved; it is neither free nor in doubt."""
    backend = backend_of(store)
    backend.claim(asked("key", "first"))
    backend._connections.get().execute("UPDATE durastore_records SET lease = NULL, expires_at = NULL")
    answer = backend.claim(asked("key", "second"))
    assert isinstance(answer, Held)
    assert (answer.lease_left, answer.in_doubt) == (None, False)
    assert [record.state for record in store.records()] == ["claimed"]
    assert store.resolve("key", retry=True, force=True).state == "abandoned"


def test_a_file_that_is_locked_as_it_is_opened(
    store: durastore.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new connection (each thread has its own) waits for who just closes or recovers the file, and takes no error from it."""
    store.close()
    holder = sqlite3.connect(path)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def lets_go(seconds: float) -> None:
        waits.append(seconds)
        holder.close()

    backend = SQLiteBackend(path, "default")
    monkeypatch.setattr("durastore_sqlite.connections.time.sleep", lets_go)
    assert list(backend.read(["key"])) == [None]
    assert len(waits) == 1
    backend.close()


def test_all_that_wait_hear_that_the_transaction_did_not_begin(store: durastore.Store) -> None:
    """When the file can't be written, each of the threads that wait gets the error, not the one alone whose turn it was."""
    connections = backend_of(store)._connections
    errors: list[str] = []

    def write() -> None:
        try:
            connections.write(lambda _connection: None)
        except sqlite3.OperationalError as exc:
            errors.append(str(exc))

    def refused(_work: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    connections.transaction = refused  # type: ignore[method-assign,assignment]
    threads = [threading.Thread(target=write) for _ in range(4)]
    with connections._turn:
        for thread in threads:
            thread.start()
        while len(connections._waiting) < len(threads):
            time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert errors == ["disk I/O error"] * 4


def test_a_write_whose_taker_was_interrupted_is_done(store: durastore.Store) -> None:
    """A waiting write that is in nobody's hands any more is done by its own thread."""
    connections = backend_of(store)._connections
    done: list[int] = []
    thread = threading.Thread(target=connections.write, args=(lambda _connection: done.append(1),))
    with connections._turn:
        thread.start()
        while not connections._waiting:
            time.sleep(0.001)
        connections._waiting.clear()
    thread.join(30)
    assert done == [1]
