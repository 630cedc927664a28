"""Acquire, renew and release named leases, as rows of a table that the caller names. Pure.

Owns: when a lease may be taken, and which of its columns each step writes. Time is the oracle's: a
lease has expired if a start timestamp is past its `expires`. No clock of a client counts.
A takeover raises the epoch. So each commit that has the lease as a prerequisite is below the
takeover, or is refused. A renewal never moves the expiry back: its column keeps the maximum. So it
does not matter in which order renewals arrive.
"""

from typing import Any, Final

from dodona._core.protocol.arguments import check_number, check_path, check_text
from dodona._core.protocol.retry import RERUN_DEADLINE_MS
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession
from dodona._core.writing.conditions import requirement_of
from dodona._core.writing.lease import EPOCH_MAX, Lease, check_lease
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    LeaseHeld,
    PrerequisiteFailed,
)
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
        """Return the lease. Raises LeaseHeld, and the errors of a write. An attempt may be
        committed although its outcome is not known. A later one then finds its own row."""
        check_path(path)
        _check_name(name, "name")
        _check_name(owner, "owner")
        check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)
        wanted, rerun = Lease(path, name, owner, 1), self._session.rerun(None, RERUN_DEADLINE_MS)
        doubtful: list[dict[str, Any]] = []
        doubt: CommitOutcomeUnknown | None = None
        while True:
            values: dict[str, Any] = {}
            last: DodonaError
            try:
                now = yield from self._session.generate_timestamp()
                row = yield from self._row(wanted, now)
                if row not in doubtful:
                    values = _taken(wanted, row, now, lease_ms)
                    yield from self._take(path, row, values)
                    row = values
                assert row is not None, "no attempt writes nothing"
                return Lease(path, name, owner, row["epoch"])
            except LeaseHeld:
                raise
            except CommitOutcomeUnknown as error:
                doubtful.append(values)
                last = doubt = doubt or error
            except DodonaError as error:
                last = doubt or error
                if not (error.is_retryable or isinstance(error, PrerequisiteFailed)):
                    raise last from error
            pause = rerun.next_pause()
            if pause is None or (yield pause):
                raise last

    def _row(self, lease: Lease, now: Timestamp) -> Protocol[dict[str, Any] | None]:
        (row,) = yield from self._session.lookup_rows(lease.table, [lease.key], None, True, now)
        return row

    def _take(
        self, path: str, row: dict[str, Any] | None, values: dict[str, Any]
    ) -> Protocol[Timestamp | None]:
        """Write the new owner, if the row is as it was read. So a takeover and a renewal meet. A
        transaction would lose to each one that holds the row as a prerequisite. This write waits
        for them."""
        expect = None if row is None else {it: row[it] for it in ("owner", "epoch", "expires")}
        required = requirement_of(row is None, None, expect)
        return self._session.write_rows(path, [values], False, "sync", False, required)

    def renew(self, lease: Lease, lease_ms: int = LEASE_MS) -> Protocol[None]:
        """Let the lease expire `lease_ms` from now, or later if it does already. Raises
        PrerequisiteFailed."""
        check_lease(lease)
        check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)
        now = yield from self._session.generate_timestamp()
        values = {"expires": _expiry(now, lease_ms)}
        yield from self._update(lease, values, keeps_maximum=True)

    def release(self, lease: Lease) -> Protocol[None]:
        """Let others acquire the lease now. Raises PrerequisiteFailed."""
        check_lease(lease)
        return self._update(lease, {"owner": None, "expires": 0}, keeps_maximum=False)

    def _update(self, lease: Lease, values: dict[str, Any], keeps_maximum: bool) -> Protocol[None]:
        write, rows = self._session.write_rows, [{**lease.key, **values}]
        yield from write(lease.table, rows, True, "sync", keeps_maximum, lease.required)


def _check_name(text: str, what: str) -> None:
    check_text(text, what)
    check_number(len(text), f"the length of {what}", 1, NAME_LENGTH_MAX)


def _expiry(now: Timestamp, lease_ms: int) -> int:
    return now + (lease_ms << TIMESTAMP_COUNTER_BITS) // 1000


def _taken(
    wanted: Lease, row: dict[str, Any] | None, now: Timestamp, lease_ms: int
) -> dict[str, Any]:
    """Return the row of the next owner. Raises LeaseHeld. Raises InvalidRequest for a row that
    another program wrote: its epoch must not begin again."""
    epoch: Any = 0
    if row is not None:
        epoch, expires = row.get("epoch"), row.get("expires")
        is_epoch = type(epoch) is int and 0 <= epoch < EPOCH_MAX
        if not is_epoch or type(expires) is not int:
            raise _misfit(wanted, row)
        if row.get("owner") is not None and expires > now:
            raise _held(wanted, row)
    made = {"owner": wanted.owner, "epoch": epoch + 1, "expires": _expiry(now, lease_ms)}
    return {**wanted.key, **made}


def _misfit(wanted: Lease, row: dict[str, Any]) -> InvalidRequest:
    text = (
        f"The row of lease {wanted.name!r} has no valid epoch, or no expiry, so it is no row of "
        "`leases.acquire`. Write an epoch that is above all earlier ones, and the expiry 0."
    )
    epoch, expires = row.get("epoch"), row.get("expires")
    return InvalidRequest(text, table=wanted.table, name=wanted.name, epoch=epoch, expires=expires)


def _held(wanted: Lease, row: dict[str, Any]) -> LeaseHeld:
    owner, epoch, expires = row["owner"], row["epoch"], row["expires"]
    text = f"Lease {wanted.name!r} belongs to {owner!r}. Wait until it expires or is released."
    return LeaseHeld(
        text, table=wanted.table, name=wanted.name, owner=owner, epoch=epoch, expires=expires
    )
