"""What one state of the replicated log consists of: plain data that never changes.

Owns: the fields, and how a part of a state is replaced. All that is known of a replica is in the
replica's own tuple, so that replicas can be sorted: states that differ only in the names of
replicas are one state.

No message is stored. A message is a fact that stays true, so that it can be late, lost, repeated or
out of order. The log of an owner is every append that it has sent. The epoch of a replica is every
answer that it may give. Must not import: rules or parts.
"""

from typing import Final

from msgspec import Struct

from replication_model.logs import Log

CANDIDATE: Final = 0
"""The document names it. It has no log yet."""
OWNER: Final = 1
"""It has taken a log. It serves once its wait is over and its opening record acknowledged."""
RELEASED: Final = 2
"""It has handed over, and may only acknowledge."""
ENDED: Final = 3
"""It can change nothing any more. Only its appends are still under way."""

CONFIRMED: Final = 1
"""In the set that the owner knows."""
PROPOSED: Final = 2
"""In the set of its compare that is in doubt."""
PONG: Final = 4
"""Has answered the newest ping."""

IN_SET: Final = 1
"""In the set that the document names."""
READ: Final = 2
"""In the set that a candidate read some time ago. Only a planted bug uses that."""

LOST: Final = -1
"""The epoch of a replica whose disk is lost. A new disk has a new id: it is another replica."""

NONE: Final = 0
SENT: Final = 1
"""A compare that may yet be applied."""
APPLIED: Final = 2
"""A compare that is applied, which its owner does not know."""

NOT_BEGUN: Final = -1
"""The wait of a successor before the first `fenced`; a ping that is not sent."""


class View(Struct, frozen=True, gc=False):
    """What one owner knows of one replica."""

    roles: int = 0
    said: int = 0
    """The last `stored`, once the replica has left the epoch of the owner."""
    lease: int = 0
    """Ticks for which the replica's answers still carry a lease, once it has left the epoch."""


STRANGER: Final = View()


class Replica(Struct, frozen=True, gc=False):
    """One log on one disk."""

    epoch: int
    log: Log
    member: int
    views: tuple[View, ...]
    """By owner."""


class Owner(Struct, frozen=True, gc=False):
    """A process that the document named at some time. It may stop for ever, or go on at any
    later time."""

    epoch: int
    phase: int
    log: Log = ()
    acknowledged: int = 0
    """How many entries."""
    opening: int = 0
    """How many entries the log has with the opening record."""
    wait: int = 0
    change: int = NONE
    ping: int = NOT_BEGUN
    """Ticks that are left of the lease that the ping under way would give."""
    lease: int = 0


class Head(Struct, frozen=True, gc=False):
    """The document without its set, and what the outside world has seen."""

    epoch: int
    is_released: bool
    acknowledged: Log
    write_count: int
    loss_count: int


class State(Struct, frozen=True, gc=False):
    """All of a cluster."""

    head: Head
    owners: tuple[Owner, ...]
    replicas: tuple[Replica, ...]

    def with_owner(self, at: int, owner: Owner) -> "State":
        owners = (*self.owners[:at], owner, *self.owners[at + 1 :])
        return State(self.head, owners, self.replicas)

    def with_replica(self, at: int, replica: Replica) -> "State":
        replicas = (*self.replicas[:at], replica, *self.replicas[at + 1 :])
        return State(self.head, self.owners, replicas)


def is_strange(replica: Replica) -> bool:
    """Whether no owner counts this replica."""
    return all(it == STRANGER for it in replica.views)


def with_view(replica: Replica, at: int, view: View) -> Replica:
    views = (*replica.views[:at], view, *replica.views[at + 1 :])
    return Replica(replica.epoch, replica.log, replica.member, views)
