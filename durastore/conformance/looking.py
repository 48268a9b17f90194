"""READ and SCAN: looking, which changes nothing."""

from __future__ import annotations

from functools import partial

from durastore.conformance.client import LEASE, SECOND, Client, progress, until_listed
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.conformance.paging import every
from durastore.contract import RecordState, StoredProgress

__all__ = ["ReadClauses", "ScanClauses"]

STATES: tuple[RecordState, ...] = ("claimed", "in_doubt", "abandoned", "committed")


def _one_of_each(client: Client) -> None:
    """A record in each state; `lapsed` is written as a claim and is in doubt by now."""
    client.grant("live")
    client.grant("lapsed", lease=0)
    client.abandon(client.grant("doubt"), in_doubt=True)
    client.abandon(client.grant("back"))
    client.done("done", run="other")
    client.done("old", retain=SECOND)


def _runs(client: Client, limit: int) -> list[StoredProgress]:
    pages = list(every(lambda cursor: client.backend.scan_runs(cursor=cursor, limit=limit)))
    assert max(len(page.items) for page in pages) <= limit, "a page holds at most `limit` runs"
    return [run for page in pages for run in page.items]


def _run_ids(client: Client, limit: int) -> list[str]:
    return [run.run_id for run in _runs(client, limit)]


class ReadClauses:
    """One test or more for each READ clause."""

    @clause("READ-1")
    def test_read_1_in_order(self, harness: Harness) -> None:
        """One answer for each key in the order asked, None for absent ones, also for a key that is asked twice."""
        client, other = Client(harness), Client(harness)
        client.grant("a")
        client.done("b")
        found = other.backend.read(["b", "none", "a", "b"], now=BASE)
        assert [None if record is None else record.key for record in found] == ["b", None, "a", "b"]
        assert list(other.backend.read([], now=BASE)) == []

    @clause("READ-1")
    def test_read_1_many_keys(self, harness: Harness) -> None:
        """More keys than any store takes in one request."""
        client = Client(harness)
        client.done("key-0")
        client.done("key-249")
        found = client.backend.read([f"key-{number}" for number in range(250)], now=BASE)
        assert {number: record.key for number, record in enumerate(found) if record} == {0: "key-0", 249: "key-249"}
        assert len(found) == 250

    @clause("READ-1")
    def test_read_1_seen_at_once(self, harness: Harness) -> None:
        """Each write of one client is read by another at once."""
        client, other = Client(harness), Client(harness)
        for number in range(3):
            grant = client.grant(f"key-{number}")
            assert other.record(f"key-{number}").state == "claimed"
            client.commit(grant)
            assert other.record(f"key-{number}").state == "committed"


class ScanClauses:
    """One test or more for each SCAN clause."""

    @clause("SCAN-1")
    def test_scan_1_paging(self, harness: Harness) -> None:
        """Over pages of any size each record is listed exactly once, as `read` gives it."""
        client = Client(harness)
        keys = [f"key/{number} é" for number in range(7)]
        for key in keys:
            client.grant(key)
        until_listed(client.names, keys)
        for limit in (1, 3, 7, 100):
            assert sorted(record.key for record in client.listed(limit=limit)) == sorted(keys), f"pages of {limit}"
        for record in client.listed():
            assert record == client.record(record.key)

    @clause("SCAN-1")
    def test_scan_1_changes_meanwhile(self, harness: Harness) -> None:
        """Records that match throughout are listed once, though others come, change and go between the pages."""
        client = Client(harness)
        grants = [client.grant(f"key-{number}") for number in range(6)]
        until_listed(client.names, [grant.key for grant in grants])
        first = client.backend.scan(limit=2, now=BASE)
        gone = next(grant for grant in grants if grant.key not in {record.key for record in first.items})
        client.delete(client.record(gone.key))
        client.grant("a new one")
        client.renew(*(grant for grant in grants if grant is not gone), at=SECOND)
        rest = every(lambda cursor: client.backend.scan(limit=2, cursor=cursor or first.cursor, now=BASE))
        seen = [record.key for page in (first, *rest) for record in page.items]
        assert sorted(set(seen) - {"a new one", gone.key}) == sorted({grant.key for grant in grants} - {gone.key})
        assert len(seen) == len(set(seen)), "none is listed twice"

    @clause("SCAN-1")
    def test_scan_1_filters(self, harness: Harness) -> None:
        """Run, state and prefix filter together; a prefix is compared byte for byte, wildcards are plain characters."""
        client = Client(harness)
        keys = ["a%b", "axb", "a_b", "A%b", "a\\b", "a", "é1", "é2", "😀"]
        for number, key in enumerate(keys):
            client.grant(key, run=f"run-{number % 2}", lease=LEASE if number % 3 else 0)
        until_listed(client.names, keys)
        for prefix in ("a", "a%", "a_", "a\\", "A", "é", "e", "😀", "b"):
            assert client.names(prefix=prefix) == sorted(key for key in keys if key.startswith(prefix)), prefix
        assert client.names(run_id="run-0") == sorted(keys[::2])
        assert client.names(run_id="RUN-0") == client.names(run_id="run") == []
        assert client.names(run_id="run-0", state="in_doubt", prefix="é") == ["é1"]
        assert client.names(run_id="run-1", state="in_doubt", prefix="a") == []

    @clause("SCAN-2")
    def test_scan_2_state_by_now(self, harness: Harness) -> None:
        """The state filter goes by now: a lapsed claim is in doubt; records past retention are not listed."""
        client = Client(harness)
        _one_of_each(client)
        until_listed(client.names, ["live", "lapsed", "doubt", "back", "done", "old"])
        soon = {state: client.names(state=state) for state in STATES}
        late = {state: client.names(state=state, at=LEASE) for state in STATES}
        assert soon == {
            "claimed": ["live"],
            "in_doubt": ["doubt", "lapsed"],
            "abandoned": ["back"],
            "committed": ["done", "old"],
        }
        assert late == {
            "claimed": [],
            "in_doubt": ["doubt", "lapsed", "live"],
            "abandoned": ["back"],
            "committed": ["done"],
        }
        assert client.names(at=LEASE) == ["back", "done", "doubt", "lapsed", "live"]
        assert client.names(run_id="run", state="committed") == ["old"]

    @clause("SCAN-3")
    def test_scan_3_looking_changes_nothing(self, harness: Harness) -> None:
        """Listing and reading, at any time, leave every record as it is."""
        client = Client(harness)
        _one_of_each(client)
        client.save(3)
        with client.unchanged("live", "lapsed", "doubt", "back", "done", "old"):
            for at in (0, 2 * LEASE):
                client.listed(at=at, limit=2)
                client.backend.read(["live", "lapsed", "old"], now=BASE + at)
            client.backend.scan_runs()

    @clause("SCAN-3")
    def test_scan_3_empty(self, harness: Harness) -> None:
        """Nothing is listed where nothing is."""
        client = Client(harness)
        assert client.listed() == []
        page = client.backend.scan_runs()
        assert (list(page.items), page.cursor) == ([], None)

    @clause("SCAN-4")
    def test_scan_4_runs(self, harness: Harness) -> None:
        """Over pages of any size each run with progress or an incarnation is listed once, as `load` gives it."""
        client = Client(harness)
        names = [f"run/{number} é" for number in range(4)]
        for step, name in enumerate(names):
            client.save(step, run=name)
        client.backend.incarnate("incarnated", now=BASE)
        client.done("a record without progress", run="none")
        client.commit(client.grant("with progress"), progress=progress(1, run="committed"))
        expected = [*names, "incarnated", "committed"]
        for limit in (1, 2, 100):
            until_listed(partial(_run_ids, client, limit), expected)
        for run in _runs(client, 100):
            assert run == client.load(run.run_id)
