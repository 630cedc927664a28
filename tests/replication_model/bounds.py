"""How large a cluster of the model is, and which of its abilities it uses.

Owns: the bounds that make the number of states finite. Delays, losses and repetitions of messages,
restarts, changes of a set, and passing time have no bound. Must not import: anything else of the
model.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """One configuration of the replicated log."""

    title: str
    replica_count: int = 3
    """With spares: the first `member_count` are the set at the start."""

    member_count: int = 3
    member_count_max: int = 3
    copies_min: int = 2
    epoch_count: int = 2
    write_count: int = 1
    loss_count: int = 0
    """Of disks."""

    outstanding_max: int = 1
    """Entries that an owner has appended and not acknowledged."""

    lease_ticks: int = 1
    wait_ticks: int = 1
    """The clock of an owner is as slow, and that of a successor as fast, as drift allows. So the
    wait is as long as the lease here, and not longer."""

    has_pings: bool = False
    """Each ping is sent, answered and counted. Without pings, a lease ends `lease_ticks` after the
    first replica of the possible sets left the epoch. Pings can give no longer one."""

    confirms_reads: bool = False
    """No lease and no wait: a read waits for a ping that was sent after the read."""

    may_change_set: bool = True
    may_release: bool = False
    may_cut: bool = False
    splits_compares: bool = False
    """A compare that changes the set is sent in one step, and applied in another one or never."""

    keeps_spares: bool = True
    """A replica outside every set keeps its old log. Otherwise it is an empty spare, and a learner
    is copied in one step."""

    checks_members: bool = True
    """Check that each member has all that is acknowledged. Planted bugs must be visible without."""

    checks_reads: bool = True
