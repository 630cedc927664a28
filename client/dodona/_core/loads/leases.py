"""Plan when a client renews its loads, so that no cell ends a load whose owner still runs. Pure.

Owns: which loads this process works on, and when each one is due. A load that has ended is not
renewed again. If a task then sends rows for it, the cells refuse them.
"""

from typing import Final
from weakref import ref

from dodona._core.loads.cells import renew_everywhere
from dodona._core.loads.ticket import LoadTicket
from dodona._core.protocol.context import Context
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import DodonaError, InvalidRequest, LoadEnded
from dodona_wire.shown import shown

ROUNDS_PER_LEASE: Final = 4


class Lease:
    """A load that the client renews while it is open and the program has a reference to this
    object."""

    __slots__ = ("__weakref__", "due_us", "is_open", "ticket")

    def __init__(self, ticket: LoadTicket) -> None:
        """Make a lease that is open. Raises InvalidRequest if `ticket` is no LoadTicket."""
        if not isinstance(ticket, LoadTicket):
            raise InvalidRequest(f"a load's ticket is a LoadTicket, not {shown(ticket)}")
        self.ticket = ticket
        self.is_open = True
        self.due_us = 0


class Leases:
    """The leases of the loads of one client."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leases: list[ref[Lease]] = []

    def add(self, lease: Lease) -> None:
        """Renew the lease from now on."""
        self._leases = [ref(lease), *[ref(it) for it in self._open()]]
        self._plan(lease)

    def wait_ms(self) -> int | None:
        """Return the milliseconds until the next renewal, or None if there is none."""
        due_us = min((lease.due_us for lease in self._open()), default=None)
        now_us = self._context.instant_us()
        return None if due_us is None else max(0, -((now_us - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Renew all leases that are due."""
        now_us = self._context.instant_us()
        for lease in [it for it in self._open() if it.due_us <= now_us]:
            self._plan(lease)
            try:
                yield from renew_everywhere(self._context, lease.ticket.load)
            except LoadEnded:
                lease.is_open = False
            except DodonaError:  # the next round tries again
                continue

    def _plan(self, lease: Lease) -> None:
        period_us = lease.ticket.lease_ms * 1000 // ROUNDS_PER_LEASE
        lease.due_us = self._context.instant_us() + period_us

    def _open(self) -> list[Lease]:
        known = [lease() for lease in self._leases]
        return [it for it in known if it is not None and it.is_open]
