"""The recipes of ``docs/recipes.md``: each runs as written, is killed where it hurts, and keeps what it promises."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import durastore

DOCS = Path(__file__).parents[2] / "docs" / "recipes.md"
README = Path(__file__).parents[2] / "README.md"
COMMANDS = Path(sys.executable).parent
PATIENCE = 60.0
"""Seconds after which a recipe is broken, not slow."""

FAR_SIDE = '''
"""The outside world: what happens is a line in a file, and a test can have something happen before or after it."""
import json, os, signal, time
from pathlib import Path

def happen(key):
    meddle("before", key)
    with open("world.log", "a") as log:
        log.write(key + "\\n")
    meddle("after", key)
    return {"done": key}

def meddle(when, key):
    order = Path(f"{when}-{key}")
    try:
        what = order.read_text()
        order.unlink()
    except FileNotFoundError:
        return
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ConnectionError("the far side hung up")
    Path("reached").touch()
    time.sleep(600)
'''
STUBS = {
    "far_side.py": FAR_SIDE,
    "bank.py": """
from pathlib import Path
from far_side import happen
def pay(key, cents):
    return happen(key) | {"cents": cents}
def find(key):
    if Path("unreachable").exists():
        raise ConnectionError("no route")
    log = Path("world.log")
    return {"found": key} if log.exists() and key in log.read_text().splitlines() else None
""",
    "mail.py": "from far_side import happen\ndef send(key, to):\n    return happen(key)\n",
    "shop.py": "from far_side import happen\ndef ship(order, key=None):\n    return happen(key or order)\n",
}


def blocks(title: str, language: str = "python") -> list[str]:
    """The code below a heading."""
    section = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, title
    return re.findall(rf"^```{language}\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)


class Place:
    """A folder in which a recipe runs, with what it imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/agent.db"
        self.env = {**os.environ, "DURASTORE_URL": self.url, "PATH": f"{COMMANDS}:{os.environ['PATH']}"}
        self.started: list[subprocess.Popen[str]] = []
        for name, text in STUBS.items():
            (folder / name).write_text(text)

    def recipe(self, title: str, *changes: tuple[str, str], then: str = "") -> None:
        """Write a recipe to a file, with what a test must change so as not to wait."""
        (text,) = blocks(title)
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (self.folder / "recipe.py").write_text(text + then)

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command or (sys.executable, "recipe.py"), cwd=self.folder, env=self.env | env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *command: str, code: int = 0, **env: str) -> str:
        process = self.start(*command, **env)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, err
        return out

    def meddle(self, when: str, key: str, what: str) -> None:
        """Have something happen at a point of the outside world, once."""
        (self.folder / f"{when}-{key}").write_text(what)

    def await_file(self, name: str) -> None:
        ends = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            assert time.monotonic() < ends, f"no {name}"
            time.sleep(0.01)

    @property
    def world(self) -> Counter[str]:
        """What happened, and how often."""
        log = self.folder / "world.log"
        return Counter(log.read_text().splitlines() if log.exists() else [])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


AGENT_LOOP = """

class Counting(Model):
    def __init__(self, dies_at=0):
        self.calls, self.dies_at = 0, dies_at

    def reply(self, messages):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        return super().reply(messages)


with durastore.open("sqlite:///agent.db") as store:
    again = Counting()
    assert answer("weather tomorrow?", store.checkpoint("chat-42"), again) == "It will be sunny."
    assert again.calls == 0, "the answers of the first run are heard again"
    try:
        answer("weather today?", store.checkpoint("chat-43"), Counting(dies_at=2))
    except KeyboardInterrupt:
        resumed = Counting()
        assert answer("weather today?", store.checkpoint("chat-43"), resumed) == "It will be sunny."
        assert resumed.calls == 1, "only the turn that was left"
    try:
        answer("weather yesterday?", store.checkpoint("chat-42"), Counting())
    except durastore.FingerprintMismatch:
        print("refused")
"""


def test_an_agent_loop(place: Place) -> None:
    """A resumed loop pays for no turn twice, and a changed question under an old run is refused."""
    place.recipe("An agent loop", then=AGENT_LOOP)
    assert place.run().splitlines() == ["It will be sunny.", "refused"]


@pytest.mark.parametrize(("when", "status"), [("before", "executed"), ("after", "recovered")])
def test_a_payment(place: Place, when: str, status: str) -> None:
    """Killed before or after the bank booked: the next run finds out which, and each order is paid once."""
    place.recipe("A payment", ("lease=15", "lease=1"))
    place.meddle(when, "pay:17", "kill")
    place.run(code=-signal.SIGKILL)
    assert [line.split()[-1] for line in place.run().splitlines()] == [status, "executed"]
    assert place.world == {"pay:17": 1, "pay:18": 1}
    assert [line.split()[-1] for line in place.run().splitlines()] == ["skipped", "skipped"]


def test_a_payment_of_which_nobody_knows(place: Place) -> None:
    """While the bank cannot be asked, nothing is paid again; later, it is."""
    place.recipe("A payment")
    place.meddle("after", "pay:17", "raise")
    place.run(code=1)
    (place.folder / "unreachable").touch()
    assert "InDoubt" in place.start().communicate(timeout=PATIENCE)[1]
    (place.folder / "unreachable").unlink()
    assert place.run().split("\n")[0].endswith("recovered")
    assert place.world == {"pay:17": 1, "pay:18": 1}


def test_an_outbox(place: Place) -> None:
    """Killed within the transaction: no row, and one row after the next run. The relay sends at least once, by the row's id."""
    dies = 'from far_side import meddle; meddle("after", order["email"]); return {"outbox": row.lastrowid}'
    place.recipe(
        "An outbox",
        ('return {"outbox": row.lastrowid}', dies),
        ('store.checkpoint("invoices")', 'store.checkpoint("invoices", lease=1)'),
    )
    place.meddle("after", "b@example.com", "kill")
    place.run(code=-signal.SIGKILL)
    place.meddle("after", "mail:2", "raise")
    place.run(code=1)
    place.run()
    place.run()
    assert place.world == {"mail:1": 1, "mail:2": 2}


LAMBDA = """
import json, sys

class Context:
    def get_remaining_time_in_millis(self):
        return 30_000

for line in sys.stdin:
    records = [{"messageId": name, "body": f"order {name}"} for name in json.loads(line)]
    print("answer", json.dumps(handler({"Records": records}, Context())))
"""


def test_a_lambda_handler(place: Place) -> None:
    """A message that is delivered again is not shipped again; one that failed or is under way goes back to the queue."""
    place.recipe("A Lambda handler", then=LAMBDA)
    place.meddle("before", "ship:b", "raise")
    with durastore.open(place.url) as store, store.checkpoint("shipping").claim("ship:c") as other:
        assert _answers(place, ["a", "b", "c"]) == ["b", "c"]
        other.commit("by another invocation")
    assert _answers(place, ["a", "b", "c"]) == []
    assert place.world == {"ship:a": 1, "ship:b": 1}


def _answers(place: Place, names: list[str]) -> list[str]:
    """Which messages the handler gives back."""
    process = subprocess.run(
        [sys.executable, "recipe.py"], cwd=place.folder, env=place.env, input=json.dumps(names), text=True,
        capture_output=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    (answer,) = [line for line in process.stdout.splitlines() if line.startswith("answer ")]
    return [item["itemIdentifier"] for item in json.loads(answer[7:])["batchItemFailures"]]


def test_a_cloud_run_job(place: Place) -> None:
    """SIGTERM ends the step under way and gives its claim back: the next task goes on at once, and nothing is shipped twice."""
    place.recipe("A Cloud Run job that gets SIGTERM")
    place.meddle("before", "order-6", "block")
    task = {"CLOUD_RUN_TASK_INDEX": "0", "CLOUD_RUN_TASK_COUNT": "2"}
    process = place.start(**task)
    place.await_file("reached")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    with durastore.open(place.url) as store:
        assert [record.state for record in store.records() if record.state != "committed"] == ["abandoned"]
    assert place.run(**task) == "10 shipped, 7 of them now\n"
    assert place.run(CLOUD_RUN_TASK_INDEX="1", CLOUD_RUN_TASK_COUNT="2") == "10 shipped, 10 of them now\n"
    assert place.world == {f"order-{number}": 1 for number in range(20)}


def test_a_kubernetes_job(place: Place) -> None:
    """The pod's command, killed in mid-step and started anew: it takes over at once, far sooner than its lease of ten minutes."""
    (text,) = blocks("A Kubernetes Job", "yaml")
    job: dict[str, Any] = yaml.safe_load(text)
    pod = job["spec"]["template"]["spec"]
    assert (job["kind"], job["spec"]["completions"], pod["restartPolicy"]) == ("Job", 1, "Never")
    command = pod["containers"][0]["command"]
    (place.folder / "orders.txt").write_text("one\ntwo\nthree\n")
    script = place.folder / "ship.sh"
    script.write_text(
        "#!/bin/sh\n[ $1 = two ] && [ ! -e reached ] && touch reached && sleep 600\necho $1 >> world.log\n"
    )
    script.chmod(0o755)
    pod_process = place.start(*command)
    place.await_file("reached")
    pod_process.kill()
    pod_process.communicate(timeout=PATIENCE)
    place.run(*command)
    assert place.world == {"one": 1, "two": 1, "three": 1}


def test_two_workers_on_one_run(place: Place) -> None:
    """Two at once share the work; one that is killed leaves the other the rest. Every order is charged once."""
    place.recipe("Two workers on one run", ("lease=60", "lease=1"))
    place.meddle("before", "charge:5", "block")
    victim = place.start()
    place.await_file("reached")
    other = place.start()
    place.await_file("world.log")
    victim.kill()
    out, err = other.communicate(timeout=PATIENCE)
    assert (other.returncode, int(out)) == (0, 35), err
    assert place.world == {f"charge:{number}": 1 for number in range(40)}
    assert place.run() == "0\n"


def test_every_recipe_is_tested_and_linked() -> None:
    """The contents name every recipe, links lead somewhere, and none is here without a test."""
    text = DOCS.read_text()
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    anchors = {title: "#" + re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    listed = dict(re.findall(r"^- \[(.+?)\]\((.+?)\)$", text, re.MULTILINE))
    moving = listed.pop("Moving to another store")
    assert listed == anchors
    assert "## Moving to another store" in README.read_text()
    assert moving == "../README.md#moving-to-another-store"
    assert "(docs/recipes.md)" in README.read_text()
    source = Path(__file__).read_text()
    assert all(f'"{title}"' in source for title in titles)
