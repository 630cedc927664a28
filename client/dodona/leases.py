"""Named leases in the blocking API: one owner at a time may write under a name.

Owns: the public names and arguments of `Leases`.
"""

# Generated from aio_leases.py by python -m twins: change that, and run it.

from dodona._core.named_leases import LEASE_MS
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.session import Session
from dodona._core.writing.lease import LEASE_SCHEMA
from dodona._core.writing.lease import Lease as Lease
from dodona._io.bounds import Run


class Leases(ProcessBound):
    """The named leases of a client, from `Client.leases`.

    A lease is a row of a table that you name. It has one owner at a time. Pass the lease to
    `Client.begin` as a prerequisite: then the transaction commits only while the lease is
    still the owner's. An owner that was paused, and has lost the lease meanwhile, changes
    nothing."""

    _instead = MAKE_ONE_THERE

    def __init__(self, run: Run, session: Session) -> None:
        self._run = run
        self._session = session

    def create_table(self, path: str, *, timeout_ms: int | None = None) -> None:
        """Create a table for leases, and mount it. A table of leases that exists is no error.

        Raises TableExists for a table with other columns, InvalidRequest, Unavailable."""
        create = self._session.catalog.create_table
        self._run(create(path, [*LEASE_SCHEMA], mount=True, if_not_exists=True), timeout_ms)

    def acquire(
        self,
        path: str,
        name: str,
        owner: str,
        lease_ms: int = LEASE_MS,
        *,
        timeout_ms: int | None = None,
    ) -> Lease:
        """Acquire a lease that is new, released or expired. Its epoch is one more than before.

        - `path`: the table of the lease, from `create_table`.
        - `owner`: a text that names the owner. Give each process another one.
        - `lease_ms`: how long no other owner can acquire the lease, in ms, unless you renew it. The
          time is that of the oracle. At most a day.

        The call waits for transactions that have the lease as a prerequisite and commit just then,
        for about 30 s.

        Raises LeaseHeld, whose attributes name the `owner`, the `epoch` and the timestamp
        `expires`. Raises InvalidRequest if the row of the lease has no epoch or no expiry. Raises
        CommitOutcomeUnknown, TableNotFound, TableNotMounted, Unavailable."""
        acquire = self._session.named_leases.acquire
        return self._run(acquire(path, name, owner, lease_ms), timeout_ms)

    def renew(
        self, lease: Lease, lease_ms: int = LEASE_MS, *, timeout_ms: int | None = None
    ) -> None:
        """Let the lease expire `lease_ms` after now, or later if it does already: no renewal moves
        the expiry back. A lease that has expired can be renewed, if no other owner has acquired it.
        Transactions with this prerequisite do not conflict with a renewal. Raises
        PrerequisiteFailed if the lease is lost."""
        self._run(self._session.named_leases.renew(lease, lease_ms), timeout_ms)

    def release(self, lease: Lease, *, timeout_ms: int | None = None) -> None:
        """Release the lease. Transactions with this prerequisite that are not committed yet are
        refused. Raises PrerequisiteFailed if the lease is lost already."""
        self._run(self._session.named_leases.release(lease), timeout_ms)
