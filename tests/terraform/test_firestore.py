"""terraform/firestore and durastore_firestore must not drift apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durastore_firestore import INDEXED, INDEXES, TTL
from durastore_firestore.rpc import _Calls
from tests.terraform.runner import Terraform

PROJECT = "-var=project=acme-prod"
PREFIX = "agents_"
"""What the complete example's `collection` makes of the collections' names."""
PERMISSIONS = {
    "BatchGetDocuments": {"datastore.entities.get"},
    "BatchWrite": {"datastore.entities.create", "datastore.entities.delete", "datastore.entities.update"},
    "Commit": {"datastore.entities.create", "datastore.entities.delete", "datastore.entities.update"},
    "RunQuery": {"datastore.entities.get", "datastore.entities.list"},
}
"""From Google's table of the permissions that each method requires, without a transaction."""
Resources = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def resources(google_example: Callable[[str], Terraform]) -> Iterator[Resources]:
    """What the complete example applied, by type."""
    terraform = google_example("firestore/examples/complete")
    terraform("apply", "-auto-approve", "-no-color", PROJECT)
    found: Resources = defaultdict(list)
    for address, values in terraform.state()["resources"].items():
        found[address.removeprefix("module.store.").partition(".")[0]].append(values)
    yield found
    terraform("destroy", "-auto-approve", "-no-color", PROJECT)


def fields(resources: Resources, *, ttl: bool) -> dict[tuple[str, str], list[Any]]:
    """The indexes of each single field, for those with a TTL policy or for those without."""
    return {
        (one["collection"].removeprefix(PREFIX), one["field"]): [
            (index["order"], index["query_scope"]) for index in one["index_config"][0]["indexes"]
        ]
        for one in resources["google_firestore_field"]
        if bool(one["ttl_config"]) == ttl
    }


def test_every_collection_has_the_prefix(resources: Resources) -> None:
    """The collections are those that ``?collection=agents`` reads."""
    named = [
        one["collection"] for kind in ("google_firestore_field", "google_firestore_index") for one in resources[kind]
    ]
    assert named
    assert all(name.startswith(PREFIX) for name in named)


def test_composite_indexes_are_those_of_the_backend(resources: Resources) -> None:
    """Listings by prefix find their indexes, and no other index costs writes."""
    made = sorted(
        (
            one["collection"].removeprefix(PREFIX),
            one["query_scope"],
            *((field["field_path"], field["order"]) for field in one["fields"]),
        )
        for one in resources["google_firestore_index"]
    )
    wanted = sorted(
        (collection, "COLLECTION", *((field, "ASCENDING") for field in index))
        for collection, indexes in INDEXES.items()
        for index in indexes
    )
    assert made == wanted


def test_only_fields_that_queries_use_are_indexed(resources: Resources) -> None:
    """Every other field of every collection is exempt, payloads and values that only grow above all."""
    wanted: dict[tuple[str, str], list[Any]] = {(collection, "*"): [] for collection in INDEXED}
    wanted |= {
        (collection, field): [("ASCENDING", "COLLECTION")] for collection, names in INDEXED.items() for field in names
    }
    assert fields(resources, ttl=False) == wanted


def test_ttl_is_on_the_field_that_the_backend_writes(resources: Resources) -> None:
    """Expired records go by themselves; the field itself has no index, for its values only grow."""
    assert fields(resources, ttl=True) == {(collection, field): [] for collection, field in TTL.items()}


class Recording:
    """A channel that notes which methods are made of it."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def unary_unary(self, path: str, **_: Any) -> None:
        self.methods.append(path.rpartition("/")[2])

    unary_stream = unary_unary


def test_roles_allow_what_the_backend_calls_and_no_more(resources: Resources) -> None:
    """Writers have the permissions of the four methods; readers those of the two that look."""
    channel = Recording()
    _Calls(channel)  # type: ignore[arg-type]  # all that is asked of a channel here
    needed = {permission for method in channel.methods for permission in PERMISSIONS[method]}
    roles = {
        one["role_id"].rpartition("_")[2]: set(one["permissions"])
        for one in resources["google_project_iam_custom_role"]
    }
    assert roles == {"writer": needed, "reader": PERMISSIONS["BatchGetDocuments"] | PERMISSIONS["RunQuery"]}


def test_every_right_ends_at_the_database(resources: Resources) -> None:
    """A project holds many databases; nobody gets rights in another one."""
    conditions = [one["condition"] for one in resources["google_project_iam_member"]]
    assert len(conditions) == 3  # the account, a writer and a reader
    for condition in conditions:
        assert condition[0]["expression"] == 'resource.name == "projects/acme-prod/databases/agents-production"'


def test_workloads_act_as_the_account(resources: Resources) -> None:
    """By workload identity, so that there is no key to lose."""
    (binding,) = resources["google_service_account_iam_member"]
    assert binding["role"] == "roles/iam.workloadIdentityUser"
    assert binding["member"] == "serviceAccount:acme-prod.svc.id.goog[agents/worker]"


def test_backups_are_daily_and_weekly(resources: Resources) -> None:
    """As the example asks: 14 days, and 14 weeks on Saturdays."""
    kept = {
        ("weekly", one["weekly_recurrence"][0]["day"]) if one["weekly_recurrence"] else ("daily", None): one[
            "retention"
        ]
        for one in resources["google_firestore_backup_schedule"]
    }
    assert kept == {("daily", None): f"{14 * 86_400}s", ("weekly", "SATURDAY"): f"{14 * 7 * 86_400}s"}
