"""The official Firestore emulator: a jar that needs Java, and no gcloud."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from durastore._emulators.answers import NotRun
from durastore._emulators.asking import ask
from durastore._emulators.finding import JAVA_MIN, firestore_jar, java
from durastore._emulators.recipe import HOST, Recipe

__all__ = ["probe", "recipe", "url_of"]

MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
_SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Starts in two seconds and stays small; contents are small in tests."""


def recipe() -> Recipe | NotRun:
    """The emulator in the jar that is found first."""
    found = java()
    if found is None or found[1] < JAVA_MIN:
        has = "there is no java" if found is None else f"java is version {found[1]}, too old"
        return NotRun(
            f"{has} (the Firestore emulator needs {JAVA_MIN} or later)", "run: apt-get install default-jre-headless"
        )
    jar = firestore_jar()
    if jar is None:
        return NotRun(
            "there is no jar of the Firestore emulator",
            "run: gcloud components install cloud-firestore-emulator, or set FIRESTORE_EMULATOR_JAR",
        )
    version = _version(jar)
    return Recipe(
        what=f"{version} from {jar}",
        command=lambda site: [found[0], *_SMALL, "-cp", str(jar), MAIN, f"--host={HOST}", f"--port={site.port}"],
        url=lambda site: url_of(f"{HOST}:{site.port}"),
        probe=lambda url: probe(url, version),
    )


def url_of(host: str) -> str:
    """The store's URL for an emulator at ``HOST:PORT``."""
    return f"firestore://demo-durastore/(default)?emulator_host={host}"


def probe(url: str, version: str = "Firestore emulator") -> str:
    """Ask for its front page, which says Ok. A URL without an emulator's host is the real one, and is believed."""
    host = parse_qs(urlsplit(url).query).get("emulator_host")
    if not host:
        return "Firestore"
    ask(f"http://{host[0]}")
    return version


def _version(jar: Path) -> str:
    """As gcloud's snapshot of the component or firebase-tools' file name has it."""
    snapshot = jar.parents[2] / ".install" / "cloud-firestore-emulator.snapshot.json"
    named = re.search(r"emulator-v([\d.]+\d)", jar.name)
    if named:
        return f"Firestore emulator {named[1]}"
    try:
        components = json.loads(snapshot.read_text(encoding="utf-8"))["components"]
    except (OSError, ValueError, KeyError):
        return "Firestore emulator"
    found = [part["version"]["version_string"] for part in components if part.get("id") == "cloud-firestore-emulator"]
    return f"Firestore emulator {found[0]}" if found else "Firestore emulator"
