"""The whole suite as one class: subclass it, give it a `harness`, and pytest runs every clause on your store."""

from __future__ import annotations

from collections.abc import Mapping

from durastore.conformance.claiming import ClaimClauses
from durastore.conformance.clocks import ClockClauses
from durastore.conformance.crashing import CrashClauses
from durastore.conformance.freezing import ZombieClauses
from durastore.conformance.ground import GroundClauses
from durastore.conformance.holding import CommitClauses, RenewClauses
from durastore.conformance.looking import ReadClauses, ScanClauses
from durastore.conformance.losing import LostClauses
from durastore.conformance.marks import clauses_of, reason_of
from durastore.conformance.model import ModelClauses
from durastore.conformance.placing import PlaceClauses
from durastore.conformance.progressing import IncarnationClauses, ProgressClauses
from durastore.conformance.racing import RaceClauses
from durastore.conformance.settling import AbandonClauses, ForgetClauses, ResolveClauses
from durastore.conformance.storing import ChunkClauses, LimitClauses, SweepClauses
from durastore.conformance.transacting import TransactClauses
from durastore.conformance.values import ValueClauses

__all__ = ["Conformance", "required"]


class Conformance(
    ClaimClauses,
    RenewClauses,
    CommitClauses,
    TransactClauses,
    AbandonClauses,
    ProgressClauses,
    IncarnationClauses,
    ReadClauses,
    ScanClauses,
    ResolveClauses,
    ForgetClauses,
    PlaceClauses,
    ChunkClauses,
    SweepClauses,
    LimitClauses,
    ValueClauses,
    GroundClauses,
    ModelClauses,
    RaceClauses,
    LostClauses,
    CrashClauses,
    ZombieClauses,
    ClockClauses,
):
    """Every clause. A subclass has a fixture ``harness`` that yields a fresh `durastore.conformance.Harness` for each test.

    A subclass that replaces a test says so with `durastore.conformance.instead_of`; `TypeError` otherwise, since a test that is
    replaced by an empty one is green.
    """

    def __init_subclass__(cls) -> None:
        replaced = [name for name in required() if name in vars(cls) and not reason_of(vars(cls)[name])]
        if replaced:
            raise TypeError(
                f"{cls.__name__} replaces {', '.join(replaced)} of the conformance suite: mark it with @instead_of(…, reason=…)"
            )


def required() -> Mapping[str, tuple[str, ...]]:
    """The suite's tests, and which clauses each holds."""
    return {name: clauses_of(getattr(Conformance, name)) for name in dir(Conformance) if name.startswith("test_")}
