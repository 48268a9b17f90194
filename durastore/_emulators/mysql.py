"""MySQL's server, or MariaDB's in its place: each says which it is."""

from __future__ import annotations

import re
from pathlib import Path

from durastore._emulators.answers import NotRun
from durastore._emulators.finding import executable, output
from durastore._emulators.local import run_as
from durastore._emulators.recipe import HOST, Recipe, Site

__all__ = ["NAME", "probe", "recipe"]

NAME = "durastore"
_USERS = f"""\
CREATE DATABASE IF NOT EXISTS {NAME};
CREATE USER IF NOT EXISTS '{NAME}'@'%' IDENTIFIED BY '{NAME}';
GRANT ALL ON *.* TO '{NAME}'@'%' WITH GRANT OPTION;
"""
"""Run by the server itself at each start."""


def recipe() -> Recipe | NotRun:
    """MySQL's server if the machine has it, else MariaDB's."""
    from importlib.util import find_spec

    if not find_spec("pymysql"):
        return NotRun("PyMySQL is not installed", "run: pip install 'durastore[mysql]'")
    server = executable("mysqld", "mariadbd")
    if server is None:
        return NotRun("there is no mysqld or mariadbd on PATH or in /usr/sbin", "run: apt-get install mariadb-server")
    said = output(server, "--no-defaults", "--version")
    maria = "MariaDB" in said
    version = re.search(r"Ver (\d[\d.]*)", said)
    label = f"{'MariaDB' if maria else 'MySQL'} {version[1] if version else ''}"
    if maria and executable("mariadb-install-db", "mysql_install_db") is None:
        return NotRun(f"{label} is here without mariadb-install-db", "run: apt-get install mariadb-server")
    return Recipe(
        what=f"{label} from {server}",
        command=lambda site: _command(server, site, maria=maria),
        url=_url,
        probe=probe,
        prepare=lambda site: _prepare(server, site, maria=maria),
        drops_root=True,
        keeps=True,
    )


def _prepare(server: str, site: Site, *, maria: bool) -> None:
    (site.folder / "users.sql").write_text(_USERS, encoding="ascii")
    if not maria:
        return run_as(site, server, "--no-defaults", "--initialize-insecure", f"--datadir={site.data}")
    installer = executable("mariadb-install-db", "mysql_install_db")
    assert installer is not None, "looked for before"
    return run_as(
        site,
        installer,
        "--no-defaults",
        f"--datadir={site.data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    )


def _command(server: str, site: Site, *, maria: bool) -> list[str]:
    return [
        server,
        "--no-defaults",
        f"--datadir={site.data}",
        f"--socket={site.folder / 'socket'}",
        f"--pid-file={site.folder / 'pid'}",
        f"--init-file={site.folder / 'users.sql'}",
        f"--bind-address={HOST}",
        f"--port={site.port}",
        "--skip-name-resolve",
        "--performance-schema=OFF",
        "--innodb-buffer-pool-size=64M",
        "--max-connections=300",
        *([] if maria else ["--mysqlx=OFF", "--skip-log-bin"]),
    ]


def _url(site: Site) -> str:
    return f"mysql://{NAME}:{NAME}@{HOST}:{site.port}/{NAME}"


def probe(url: str) -> str:
    """Log in, and ask for the version."""
    from urllib.parse import unquote, urlsplit

    import pymysql

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname or HOST,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=Path(parts.path).name,
        connect_timeout=5,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        (version,) = cursor.fetchone() or ("",)
    number, _, rest = str(version).partition("-")
    return f"MariaDB {number} in place of MySQL" if "MariaDB" in rest else f"MySQL {number}"
