"""Records of server starts: when, after what, how long the replay took, and old transactions.

A record also says what became of the transactions that were undecided at the start. Pure.
Owns: the names and types that servers write and gateways read. A field with a default may be
missing, because a gateway and a server may have different versions.
"""

from typing import Literal

import msgspec

from dodona_wire.preload import preload_decoder
from dodona_wire.types import CellId, LoadId, Timestamp, TransactionId

RecoveryCause = Literal["nothing", "stop", "crash", "unknown"]
"""What came before a start: nothing (an empty folder), a stop in order, or an end without notice.
Unknown: there were data, but no record of how the process ended."""
TakenOverState = Literal["prepared", "committed"]
TakenOverOutcome = Literal["committed", "aborted", "delivered", "forgotten"]


class TakenOver(msgspec.Struct, frozen=True):
    """A transaction that a cell found at its start: prepared and undecided, or committed and not
    yet acknowledged by all of its participants."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    found: TakenOverState
    outcome: TakenOverOutcome | None = None
    """None while the transaction is open. Delivered: all participants acknowledged its commit."""
    timestamp: Timestamp | None = None
    """The commit timestamp."""
    after_ms: int | None = None
    """Milliseconds from the start to the outcome."""


class Recovery(msgspec.Struct, frozen=True):
    """One start of a master or of a cell. Times are Unix microseconds."""

    began_us: int
    replay_ms: int
    """The time to read the log or store and to restore its state."""
    after: RecoveryCause = "unknown"
    record_count: int = 0
    """Records of the log, or values of a master's store."""
    size_bytes: int = 0
    """The size of the log or the store."""
    chunk_count: int = 0
    """Chunks that a cell opened."""
    orphan_count: int = 0
    """Chunks that the log does not name, most likely from work that a crash ended. They are removed
    after the next checkpoint."""
    served_after_ms: int | None = None
    """For a cell, the time until it serves. The oracle and the master have to answer first."""
    transaction_count: int = 0
    """Transactions taken over: those in doubt or undelivered; for a master, master transactions."""
    transactions: tuple[TakenOver, ...] = ()
    """The first of these transactions, for a cell."""
    loads: tuple[LoadId, ...] = ()
    """The first of the bulk loads that were open and continue."""
    stopped_us: int | None = None
    """When the server stopped in order; None while it runs, and if it crashed."""


@preload_decoder
class RecoveryPage(msgspec.Struct, frozen=True):
    """The last starts of one server, oldest first."""

    recoveries: tuple[Recovery, ...] = ()
