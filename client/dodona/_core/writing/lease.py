"""A named lease: a row that says who may write, for transactions that must not outlive it. Pure.

Owns: the form of a lease, the schema of its table, and the condition that a commit checks.
Invariant: owner and epoch are in one lock group, and the expiry in another. So a renewal conflicts
with no transaction that has the lease as a prerequisite.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dodona._core.protocol.arguments import check_number, check_path, check_text
from dodona._core.writing.conditions import Requirement
from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown
from dodona_wire.types import NULL_TIMESTAMP

EPOCH_MAX: Final = (1 << 63) - 1
PREREQUISITES_MAX: Final = 100
"""The most leases of one transaction."""
LEASE_SCHEMA: Final[tuple[dict[str, Any], ...]] = (
    {"name": "name", "type": "utf8", "sort_order": "ascending"},
    {"name": "owner", "type": "utf8", "lock": "holder"},
    {"name": "epoch", "type": "int64", "lock": "holder"},
    {"name": "expires", "type": "uint64", "lock": "expiry", "aggregate": "max"},
)
"""The columns of a table of leases. `expires` is a timestamp of the oracle, and renewals only
raise it. A lease that was released has no owner."""


class Lease(msgspec.Struct, frozen=True):
    """A named lease that a program has acquired. Send it to any process that writes for the owner.
    While nothing has released it or taken it over, transactions with this prerequisite commit."""

    table: str
    """The path of its table."""
    name: str
    """Its name, which is the key of its row."""
    owner: str
    """Its owner."""
    epoch: int
    """The number of owners that the lease has had, this one included."""

    @property
    def key(self) -> dict[str, str]:
        """The key of its row."""
        return {"name": self.name}

    @property
    def required(self) -> Requirement:
        """What its row must have."""
        return Requirement(False, NULL_TIMESTAMP, {"owner": self.owner, "epoch": self.epoch})


Lease.__module__ = "dodona.leases"  # users see the name that they import


def check_lease(lease: object) -> Lease:
    """Return the lease, if it is one. Raises InvalidRequest."""
    if not isinstance(lease, Lease):
        raise InvalidRequest(f"A prerequisite is a Lease, not {shown(lease)}.")
    check_path(lease.table)
    check_text(lease.name, "the name of a lease")
    check_text(lease.owner, "the owner of a lease")
    check_number(lease.epoch, "the epoch of a lease", 1, EPOCH_MAX)
    return lease


def check_leases(leases: Iterable[Lease]) -> tuple[Lease, ...]:
    """Return the leases, each checked. Raises InvalidRequest."""
    if isinstance(leases, Lease | str | bytes) or not isinstance(leases, Iterable):
        raise InvalidRequest(f"prerequisites are a list of leases, not {shown(leases)}.")
    found = tuple([check_lease(it) for it in leases])
    if len(found) > PREREQUISITES_MAX:
        raise InvalidRequest(f"A transaction has at most {PREREQUISITES_MAX} prerequisites.")
    return found
