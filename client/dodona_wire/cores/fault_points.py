"""Fault points: places where a test may have a core do what is legal but rare. Pure.

Owns: the points, and for each the reason why it is harmless: a rule of
`docs/explanation/commit-protocol.md`, or a promise of the part that asks the point. Random faults
rarely hit the worst moment. A core that loses an answer, asks twice or acts too early hits it.
Invariants: production injects no fault. Only cores ask fault points. Code that every commit or read
passes keeps a flag (`injects_faults`) beside its `FaultAt`, so that production checks a flag and
makes no call.
Must not import: anything of Dodona.
"""

import enum
from collections.abc import Callable


class FaultPoint(enum.Enum):
    """Inject a fault here? Each point is asked at one place, and is named after the fault."""

    # A tablet node: timestamps

    ASK_ORACLE_TWICE = enum.auto()
    """For one transaction. Both are asked for under its locks (rule 1); whichever comes first
    counts, and the other finds nobody who waits for it (rule 10)."""
    LOSE_PREPARE_TIMESTAMP = enum.auto()
    """The locks stay, and the question is repeated (rule 1)."""
    GIVE_UP_ON_ORACLE = enum.auto()
    """A transaction that has its locks is refused as if the oracle did not answer in time. It is
    not prepared, so it may be (rules 11 and 13); its answer comes to nobody (rule 10)."""
    LOSE_CELL_FENCE = enum.auto()
    """It is asked for again, and a later fence is as good (rule 9)."""
    LOSE_TABLET_FENCE = enum.auto()
    """As above, for one tablet (rule 9)."""
    PROVE_AGAIN = enum.auto()
    """A read asks the oracle although its timestamp is known to have been issued: rule 3 says
    when it must be asked, and never that it must not."""

    # A tablet node: admission and waiting

    PRETEND_OVERLOADED = enum.auto()
    """A transaction is refused, on record, although there is room: a refusal needs no reason, only
    to stay one (rule 11)."""
    PRETEND_MOVED = enum.auto()
    """A prepare finds its tablet not there, and nothing is recorded. The client has the coordinator
    say that it is aborted (rule 17). Not with one cell: nobody is asked there, and only the fence
    of a tablet that really moved keeps a late copy out (rule 9)."""
    TIRE_OF_HOLDER = enum.auto()
    """A writer that would wait is refused at once: its wait is bounded from above only (rules 4
    and 20)."""
    TIRE_OF_BLOCKER = enum.auto()
    """A read that would wait fails at once: `RowBlocked` says nothing about the row (rule 6)."""
    WAKE_FOR_NOTHING = enum.auto()
    """Waiters look again although nothing happened: they check everything anew (rules 4 and 12)."""

    # A tablet node: decisions

    RECOVER_AT_ONCE = enum.auto()
    """The coordinator is prepared and asks the others at once, in a race with its client's
    decision. Recovery needs no time to pass, and commits if all are prepared (rules 13 and 14)."""
    ASK_COORDINATOR_AT_ONCE = enum.auto()
    """So does a participant that is prepared. The coordinator may not have heard of the
    transaction yet: it poisons it (rule 15)."""
    ANNOUNCE_TWICE = enum.auto()
    """A commit that is known is acknowledged again (rules 11 and 19)."""
    ANNOUNCE_TO_SOME = enum.auto()
    """A participant is left out. It is told again until it has acknowledged (rule 19)."""
    FORGET_TO_ACKNOWLEDGE = enum.auto()
    """The outcome is told again, and is obeyed already (rules 8 and 19)."""
    LOSE_CELL_MESSAGE = enum.auto()
    """Every message between cells is repeated, or asked for, until it is answered (rules 14, 15
    and 19; rows that move)."""
    REPEAT_CELL_MESSAGE = enum.auto()
    """Every message between cells is safe to repeat (rules 11 and 14 to 19)."""
    RAISE_WATERMARK_EARLY = enum.auto()
    """At every tick, whether there is anything to forget or not: W may rise as soon as it stays
    below whoever is alive (rule 12)."""

    # A tablet node: tablets, rows and the master

    LOSE_HEARTBEAT = enum.auto()
    """The next one says more: the master believes the newest."""
    REPEAT_HEARTBEAT = enum.auto()
    """With the next number: the answer to the one before is stale, and dropped."""
    LOSE_ASSIGNMENT = enum.auto()
    """Each assignment is complete: the next one says it all again."""
    LINGER = enum.auto()
    """A tablet that is free to be unmounted or frozen stays closed a little longer: nobody is let
    in meanwhile (rule 12)."""
    TELL_ONE_STORED = enum.auto()
    """A heartbeat names one tablet of those that are kept without being served: they take turns."""
    KEEP_DROPPED = enum.auto()
    """A tablet that is gone is not forgotten: the next heartbeat names it again."""
    TELL_ONE_ROW = enum.auto()
    """A page of rows that move has one row: a page ends where it ends, and says where."""
    SCAN_ONE_ROW = enum.auto()
    """So does a page of a scan: a client asks for as many as it would like, not as it must get."""

    # A tablet node: stores

    ROTATE_EARLY = enum.auto()
    """Whatever the active store has is flushed, between any two steps: where versions lie says
    nothing about them, and conflicts find them in memory for as long as they matter."""
    COMPACT_EARLY = enum.auto()
    """Chunks that nobody would compact yet say the same as one."""
    CHECKPOINT_EARLY = enum.auto()
    """A checkpoint may be made at any time; the log is cut there only once it may be."""

    # A tablet node: bulk loads

    EXPIRE_LOAD_EARLY = enum.auto()
    """A load is closed although its lease goes on: its owner may be gone at any time, and whoever
    brings or publishes something of it is told that it is over."""
    CLOSE_LOAD_LATE = enum.auto()
    """Nobody is told that a load is over before it is, and the next tick closes it."""
    FORGET_SEAL = enum.auto()
    """Seals are in memory only: what was forgotten, or is too old, is made again."""

    # The oracle

    RAISE_CEILING_LITTLE = enum.auto()
    """No further than is needed: the next request waits for the disk. Only how far it is ahead of
    need changes, never that it is durable before anybody is told."""
    ANSWER_BEHIND_APPEND = enum.auto()
    """A range that could leave at once waits for a ceiling of its own, and others overtake it: who
    asked at the same time has no order."""
    LEAVE_GAP = enum.auto()
    """Timestamps are unique and rise; nobody promised the next one."""
    MASTER_UNAVAILABLE = enum.auto()
    """The catalog answers nothing and has done nothing, as when the request was lost."""
    DROP_EARLY = enum.auto()
    """A cell is told that tablets are gone which it still serves: it lets go of them first, and
    they are gone for good."""
    LOSE_RANGE = enum.auto()
    """A proxy fails all callers of a batch: its timestamps are nobody's, and gaps are legal."""
    PRETEND_PROXY_FULL = enum.auto()
    """A proxy refuses a caller, who asks another."""

    # The client

    LOOK_UP_THE_LONG_WAY = enum.auto()
    """The short way is for what nearly all lookups are, and gives the same rows."""
    WRITE_THE_LONG_WAY = enum.auto()
    """The short way is for what nearly all writes are, and asks the same."""
    FORGET_ROUTE_OF_READ = enum.auto()
    """A route is only remembered: the master is asked again."""
    FORGET_ROUTE_OF_COMMIT = enum.auto()
    """As above, with rows that were buffered by the route before."""
    DROP_RESERVE = enum.auto()
    """Ids that were not used never will be (rule 20)."""
    LOSE_COMMIT_ANSWER = enum.auto()
    """Whatever the one cell said is as if it had timed out: its client asks, and is told the same
    (rules 11, 16 and 17)."""
    REPEAT_COMMIT = enum.auto()
    """A copy of the request comes after its answer, with nobody to hear what it gets (rule 11)."""
    LOSE_PREPARED = enum.auto()
    """A participant's answer is as if it had timed out: the coordinator, asked to abort, finds out
    that all are prepared (rules 14 and 17)."""
    LOSE_SETTLEMENT = enum.auto()
    """The coordinator's answer is as if it had timed out: it is asked again (rules 16 and 17)."""
    REPEAT_DECISION = enum.auto()
    """The coordinator obeys the first copy and answers the second alike (rule 11)."""
    PREPARE_IN_TURN = enum.auto()
    """Each cell is asked to prepare after the one before has answered. Nothing asks for a common
    instant: each p is asked for under its own cell's locks (rule 1)."""
    PREFER_LAST_COORDINATOR = enum.auto()
    """Any participant may be the first one: all are told who it is."""
    LOSE_STAGED = enum.auto()
    """A batch is sent again although it is staged: the cell knows it by its place."""
    LOSE_SEALED = enum.auto()
    """A tablet's seal is as if its answer had timed out: it is made again."""
    SEAL_TWICE = enum.auto()
    """A copy of the request comes behind its answer: a load with two seals is published by the
    newer one, or sealed anew."""
    LOSE_PUBLISHED = enum.auto()
    """An owner is told that nobody knows whether its load was published: its record does."""
    LEAVE_LOAD_OPEN = enum.auto()
    """No cell is told that a load is over: its lease ends by itself."""


FaultAt = Callable[[FaultPoint], bool]
"""Whether to inject the fault of this point, this time."""


def no_faults(_: FaultPoint) -> bool:
    """Never: what production does."""
    return False
