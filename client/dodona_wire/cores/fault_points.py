"""Fault points: places where a test can make a core do something legal but rare. Pure.

Owns: the points, and for each the reason why it is harmless. The reason is a rule of
`docs/explanation/commit-protocol.md`, or a promise of the part that asks the point. Random faults
rarely come at the worst time. A core that loses an answer, asks twice or acts too early does.
Invariants: production injects no fault. Only cores ask fault points. Code that every commit or read
passes keeps a flag (`injects_faults`) beside its `FaultAt`. So production checks a flag and makes
no call.
Must not import: anything of Dodona.
"""

import enum
from collections.abc import Callable


class FaultPoint(enum.Enum):
    """Inject a fault here? Code asks each point at one place. The name is that of the fault."""

    # A tablet node: timestamps

    ASK_ORACLE_TWICE = enum.auto()
    """A cell asks twice for one transaction, under its locks (rule 1). The answer that comes first
    counts. The other one finds no transaction that waits for it (rule 10)."""
    LOSE_PREPARE_TIMESTAMP = enum.auto()
    """The locks stay, and the cell asks again (rule 1)."""
    GIVE_UP_ON_ORACLE = enum.auto()
    """A transaction that has its locks is refused as if the oracle had not answered in time. It is
    not prepared, so this is allowed (rules 11 and 13). The late answer is dropped (rule 10)."""
    LOSE_CELL_FENCE = enum.auto()
    """The cell asks for a fence again, and a later fence is as good (rule 9)."""
    LOSE_TABLET_FENCE = enum.auto()
    """The same for one tablet (rule 9)."""
    PROVE_AGAIN = enum.auto()
    """A read asks the oracle although its timestamp is known to have been issued. Rule 3 says when
    a read must ask, and never that it must not."""

    # A tablet node: admission and waiting

    PRETEND_OVERLOADED = enum.auto()
    """A transaction is refused, with a record, although there is room. A refusal needs no reason,
    but it must stay a refusal (rule 11)."""
    PRETEND_MOVED = enum.auto()
    """A prepare does not find its tablet, and nothing is recorded. The client makes the coordinator
    say that the transaction is aborted (rule 17). This is not done with one cell: no coordinator is
    asked there. Only the fence of a tablet that really moved keeps a late copy out (rule 9)."""
    TIRE_OF_HOLDER = enum.auto()
    """A writer that would wait is refused immediately. Its wait has only an upper bound (rules 4
    and 20)."""
    TIRE_OF_BLOCKER = enum.auto()
    """A read that would wait fails now. `RowBlocked` says nothing about the row (rule 6)."""
    WAKE_FOR_NOTHING = enum.auto()
    """Waiters look again although nothing happened, and check everything (rules 4 and 12)."""

    FORGET_RECENT_KEYS = enum.auto()
    """A tablet forgets which rows were changed lately, and looks at the rows themselves. Both find
    the same changes in a range that was read."""

    # A tablet node: early locks

    END_LOCKS_EARLY = enum.auto()
    """The locks of an owner, or its wait for them, end before their time. Nothing is derived from
    early locks: a commit checks everything again. Its owner gets the same answer as after its
    lease."""
    ANSWER_LINE_EARLY = enum.auto()
    """An owner in line is answered before its wait is over. It asks again, and keeps its place."""

    # A tablet node: decisions

    RECOVER_AT_ONCE = enum.auto()
    """The prepared coordinator asks the other participants immediately, in a race with its client's
    decision. Recovery needs no time to pass, and commits if all are prepared (rules 13 and 14)."""
    ASK_COORDINATOR_AT_ONCE = enum.auto()
    """A prepared participant asks the coordinator immediately. A coordinator that has not heard of
    the transaction yet poisons it (rule 15)."""
    ANNOUNCE_TWICE = enum.auto()
    """A participant acknowledges a known commit again (rules 11 and 19)."""
    ANNOUNCE_TO_SOME = enum.auto()
    """A participant is left out. The coordinator tells it again until it acknowledges (rule 19)."""
    FORGET_TO_ACKNOWLEDGE = enum.auto()
    """The outcome is sent again, and the participant has obeyed it already (rules 8 and 19)."""
    LOSE_CELL_MESSAGE = enum.auto()
    """Every message between cells is repeated, or asked for, until it is answered (rules 14, 15 and
    19, and moves of rows)."""
    REPEAT_CELL_MESSAGE = enum.auto()
    """Every message between cells is safe to repeat (rules 11 and 14 to 19)."""
    RAISE_WATERMARK_EARLY = enum.auto()
    """At every tick, even with nothing to forget. W may rise as soon as it stays below every
    transaction that is alive (rule 12)."""

    # A tablet node: tablets, rows and the master

    LOSE_HEARTBEAT = enum.auto()
    """The next heartbeat says more. The master believes the newest one."""
    REPEAT_HEARTBEAT = enum.auto()
    """The repeat has the next number. The answer to the one before is stale, and is dropped."""
    LOSE_ASSIGNMENT = enum.auto()
    """Each assignment is complete: the next one says everything again."""
    LINGER = enum.auto()
    """A tablet that is ready for its unmount or freeze stays closed a little longer. It admits no
    transaction meanwhile (rule 12)."""
    TELL_ONE_STORED = enum.auto()
    """A heartbeat names one of the tablets that are kept without being served. They take turns."""
    KEEP_DROPPED = enum.auto()
    """A cell does not forget a tablet that is gone. The next heartbeat names the tablet again."""
    TELL_ONE_ROW = enum.auto()
    """A page of rows that move has one row. A page may end anywhere, and says where."""
    SCAN_ONE_ROW = enum.auto()
    """A page of a scan has one row. A client asks for so many rows at most, not exactly."""

    # A tablet node: stores

    ROTATE_EARLY = enum.auto()
    """The rows of the active store are flushed, between any two steps. The place of versions means
    nothing, and conflict checks find them in memory for as long as they matter."""
    COMPACT_EARLY = enum.auto()
    """Chunks that need no compaction yet are merged. The one chunk says the same."""
    CHECKPOINT_EARLY = enum.auto()
    """A checkpoint may be made at any time. The log is cut there only once that is allowed."""

    # A tablet node: bulk loads

    EXPIRE_LOAD_EARLY = enum.auto()
    """A load is closed although its lease has not ended. Its owner may be gone at any time. A
    request that stages or publishes its rows is refused: the load is over."""
    CLOSE_LOAD_LATE = enum.auto()
    """No client hears that a load is over before it is. The next tick closes the load."""
    FORGET_SEAL = enum.auto()
    """Seals are in memory only. A seal that is forgotten or too old is made again."""

    # The oracle

    RAISE_CEILING_LITTLE = enum.auto()
    """The ceiling rises no further than needed, and the next request waits for the disk. Only its
    lead over the need changes. It is still durable before any caller gets a timestamp."""
    ANSWER_BEHIND_APPEND = enum.auto()
    """A range that could leave immediately waits for a ceiling of its own, and others overtake it.
    Callers that asked at the same time have no order."""
    LEAVE_GAP = enum.auto()
    """Timestamps are unique and rise. The oracle promises no caller the next one."""
    MASTER_UNAVAILABLE = enum.auto()
    """The catalog answers nothing and has done nothing, as if the request was lost."""
    DROP_EARLY = enum.auto()
    """A cell learns that tablets are gone which it still serves. It releases them first, and they
    are gone for good."""
    LOSE_RANGE = enum.auto()
    """A proxy fails all callers of a batch. No caller gets its timestamps, and gaps are legal."""
    PRETEND_PROXY_FULL = enum.auto()
    """A proxy refuses a caller, which asks another proxy."""

    # The client

    LOOK_UP_THE_LONG_WAY = enum.auto()
    """The fast path is for nearly all lookups, and the general one returns the same rows."""
    WRITE_THE_LONG_WAY = enum.auto()
    """The fast path is for nearly all writes, and the general one asks for the same."""
    FORGET_ROUTE_OF_READ = enum.auto()
    """A client only remembers a route: it asks the master again."""
    FORGET_ROUTE_OF_COMMIT = enum.auto()
    """The same, with rows that were buffered under the route before."""
    DROP_RESERVE = enum.auto()
    """Ids that were not used never will be (rule 20)."""
    LOSE_COMMIT_ANSWER = enum.auto()
    """The answer of the only cell counts as timed out. The client asks for the outcome, and gets
    the same answer (rules 11, 16 and 17)."""
    REPEAT_COMMIT = enum.auto()
    """A copy of the request comes after its answer. No caller gets the second one (rule 11)."""
    REPEAT_LOCKS = enum.auto()
    """An owner asks again after its grant. It gets the same one, or hears that its locks have
    ended."""
    CONDENSE_READS = enum.auto()
    """The reads of a transaction are merged although they are few. What is checked and held covers
    all that was read, and a refusal needs no reason (rule 11)."""
    LOSE_PREPARED = enum.auto()
    """A participant's answer counts as timed out. The coordinator, asked to abort, finds that all
    are prepared (rules 14 and 17)."""
    LOSE_SETTLEMENT = enum.auto()
    """The coordinator's answer counts as timed out, and the client asks again (rules 16 and 17)."""
    REPEAT_DECISION = enum.auto()
    """The coordinator obeys the first copy and gives the second the same answer (rule 11)."""
    PREPARE_IN_TURN = enum.auto()
    """Each cell gets its prepare after the previous cell has answered. No rule needs a common
    instant: each p is asked for under its own cell's locks (rule 1)."""
    PREFER_LAST_COORDINATOR = enum.auto()
    """Any participant may be the first one. All participants learn which one it is."""
    LOSE_STAGED = enum.auto()
    """A batch is sent again although it is staged. The cell knows it by its place."""
    LOSE_SEALED = enum.auto()
    """The answer to a seal counts as timed out, and the seal is made again."""
    SEAL_TWICE = enum.auto()
    """A copy of the request comes after its answer. A load with two seals is published by the newer
    one, or sealed again."""
    LOSE_PUBLISHED = enum.auto()
    """The owner of a load gets an unknown outcome of its publish. The load's record has it."""
    LEAVE_LOAD_OPEN = enum.auto()
    """No cell hears that a load is over. Its lease ends by itself."""


FaultAt = Callable[[FaultPoint], bool]
"""Returns whether to inject the fault of this point, this time."""


def no_faults(_: FaultPoint) -> bool:
    """Inject no fault, as in production."""
    return False
