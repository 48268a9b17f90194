"""What a step costs, and which rights a client needs: computed from how it writes, to compare with in documentation and
Terraform.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ACTIONS", "OPTIONAL_ACTIONS", "READ_ACTIONS", "SETUP_ACTIONS", "STEPS", "Units"]

READ_ACTIONS = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query")
"""What looking needs, on the table and its indexes. `sweep` and every other verb need `ACTIONS`."""
ACTIONS = (
    *READ_ACTIONS,
    "dynamodb:BatchWriteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:UpdateItem",
)
"""What a client needs. An effect's own items in `transact` need their own rights."""
OPTIONAL_ACTIONS = ("dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive")
"""Without these, replicas in other regions and missing settings are not found out."""
SETUP_ACTIONS = (*OPTIONAL_ACTIONS, "dynamodb:CreateTable", "dynamodb:UpdateTimeToLive")
"""What `setup` needs; where Terraform makes the table, nobody."""


@dataclass(frozen=True, slots=True)
class Units:
    """Request units of one step whose items take at most 1 KB to write (4 KB to read)."""

    writes: int
    reads: int = 0

    def dollars_per_million(self, write: float = 0.625, read: float = 0.125) -> float:
        """US dollars for a million steps, given the price of a million request units (on demand, us-east-1, 2025)."""
        return self.writes * write + self.reads * read


STEPS = {
    "claim": Units(3),
    "commit": Units(2),
    "commit with progress": Units(5),
    "commit with progress and the next claim, fused": Units(9),
    "skip": Units(1),
    "renewal": Units(1),
    "save": Units(1),
}
"""Units by verb. A claim writes the record and two index entries; a commit writes the record and removes one entry. Transactions
take two units for each item, index entries one. A skip is a condition that failed, billed as a write of the record: one unit for
each KB of key, owner and result, which is why results above `Limits.inline` are kept apart."""
