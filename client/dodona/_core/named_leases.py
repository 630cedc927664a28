"""Acquire, renew and release named leases, as rows of a table that the caller names. Pure.

Owns: when a lease may be taken, and which of its columns each step writes. Time is the oracle's: a
lease has expired if a start timestamp is past its `expires`. No clock of a client counts.
A takeover raises the epoch. So each commit that has the lease as a prerequisite is below the
takeover, or is refused.
"""

from typing import Any, Final

from dodona._core.protocol.arguments import check_number, check_path, check_text
from dodona._core.protocol.retry import RERUN_DEADLINE_MS
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession
from dodona._core.writing.lease import Lease, check_lease
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import DodonaError, LeaseHeld
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, Timestamp

LEASE_MS: Final = 30_000
LEASE_MS_MAX: Final = 86_400_000
NAME_LENGTH_MAX: Final = 1_000


class NamedLeases:
    """The operations on named leases of one client."""

    def __init__(self, session: RowSession) -> None:
        self._session = session

    def acquire(
        self, path: str, name: str, owner: str, lease_ms: int = LEASE_MS
    ) -> Protocol[Lease]:
        """Return the lease. Raises LeaseHeld, and the errors of a transaction."""
        check_path(path)
        _check_name(name, "name")
        _check_name(owner, "owner")
        check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)
        session, made = self._session, Lease(path, name, owner, 1)
        rerun = session.rerun(None, RERUN_DEADLINE_MS)
        while True:
            buffer: TransactionBuffer | None = None
            try:
                buffer = yield from session.begin()
                made = yield from self._take(buffer, made, lease_ms)
                yield from session.commit(buffer)
                return made
            except DodonaError as error:
                if (yield from session.after_failure(rerun, buffer, error)):
                    return made

    def _take(self, buffer: TransactionBuffer, wanted: Lease, lease_ms: int) -> Protocol[Lease]:
        """Buffer the new owner. The writes conflict with another takeover, and with a renewal."""
        session, path = self._session, wanted.table
        start = buffer.read_timestamp()
        (row,) = yield from session.lookup_rows(path, [wanted.key], None, True, start)
        epoch = 0
        if row is not None:
            epoch = row["epoch"]
            if row["owner"] is not None and row["expires"] > start:
                raise _held(wanted, row)
        made = Lease(path, wanted.name, wanted.owner, epoch + 1)
        expires = _expiry(start, lease_ms)
        values = {**made.key, "owner": made.owner, "epoch": made.epoch, "expires": expires}
        yield from session.insert_rows(buffer, path, [values])
        return made

    def renew(self, lease: Lease, lease_ms: int = LEASE_MS) -> Protocol[None]:
        """Let the lease expire `lease_ms` from now. Raises PrerequisiteFailed."""
        check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)
        now = yield from self._session.generate_timestamp()
        yield from self._update(lease, {"expires": _expiry(now, lease_ms)})

    def release(self, lease: Lease) -> Protocol[None]:
        """Let others acquire the lease now. Raises PrerequisiteFailed."""
        return self._update(lease, {"owner": None, "expires": 0})

    def _update(self, lease: Lease, values: dict[str, Any]) -> Protocol[None]:
        check_lease(lease)
        rows = [{**lease.key, **values}]
        yield from self._session.write_rows(lease.table, rows, True, "sync", False, lease.required)


def _check_name(text: str, what: str) -> None:
    check_text(text, what)
    check_number(len(text), f"the length of {what}", 1, NAME_LENGTH_MAX)


def _expiry(now: Timestamp, lease_ms: int) -> int:
    return now + (lease_ms << TIMESTAMP_COUNTER_BITS) // 1000


def _held(wanted: Lease, row: dict[str, Any]) -> LeaseHeld:
    owner, epoch, expires = row["owner"], row["epoch"], row["expires"]
    text = f"Lease {wanted.name!r} belongs to {owner!r}. Wait until it expires or is released."
    return LeaseHeld(
        text, table=wanted.table, name=wanted.name, owner=owner, epoch=epoch, expires=expires
    )
