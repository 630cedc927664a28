"""When the loads of one client are renewed, so that no cell believes their owner dead. Pure.

Owns: which loads somebody in this process works at, and when each is due. A load that turns out to
be over is not renewed again; whoever brings it rows is told by the cells.
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
    """A load that is to be kept alive as long as this is referred to, and open."""

    __slots__ = ("__weakref__", "due_us", "is_open", "ticket")

    def __init__(self, ticket: LoadTicket) -> None:
        """Raises InvalidRequest on what is no ticket."""
        if not isinstance(ticket, LoadTicket):
            raise InvalidRequest(f"a load's ticket is a LoadTicket, not {shown(ticket)}")
        self.ticket = ticket
        self.is_open = True
        self.due_us = 0


class Leases:
    """Of one client."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leases: list[ref[Lease]] = []

    def add(self, lease: Lease) -> None:
        """Renew it from now on."""
        self._leases = [ref(lease), *[ref(it) for it in self._open()]]
        self._plan(lease)

    def wait_ms(self) -> int | None:
        """How long until the next renewal. None if there is to be none."""
        due_us = min((lease.due_us for lease in self._open()), default=None)
        now_us = self._context.instant_us()
        return None if due_us is None else max(0, -((now_us - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Renew those whose time has come."""
        now_us = self._context.instant_us()
        for lease in [it for it in self._open() if it.due_us <= now_us]:
            self._plan(lease)
            try:
                yield from renew_everywhere(self._context, lease.ticket.load)
            except LoadEnded:
                lease.is_open = False
            except DodonaError:  # the next round will do
                continue

    def _plan(self, lease: Lease) -> None:
        period_us = lease.ticket.lease_ms * 1000 // ROUNDS_PER_LEASE
        lease.due_us = self._context.instant_us() + period_us

    def _open(self) -> list[Lease]:
        known = [lease() for lease in self._leases]
        return [it for it in known if it is not None and it.is_open]
