"""What servers tell of their starts: when, after what, how long replay took, and what became of
what was undecided then. Pure.

Owns: the names and types, by which servers write them down and gateways read them. What has a
default may be missing: a gateway and a server need not be of one version.
"""

from typing import Literal

import msgspec

from dodona_wire.preload import preload_decoder
from dodona_wire.types import CellId, LoadId, Timestamp, TransactionId

RecoveryCause = Literal["nothing", "stop", "crash", "unknown"]
"""What was before a start: nothing (an empty folder), a stop in order, or an end without a word.
Unknown: there was something, and nobody wrote down how it ended."""
TakenOverState = Literal["prepared", "committed"]
TakenOverOutcome = Literal["committed", "aborted", "delivered", "forgotten"]


class TakenOver(msgspec.Struct, frozen=True):
    """A transaction that a cell's start found prepared and undecided, or committed and not yet
    acknowledged by all of its participants."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    found: TakenOverState
    outcome: TakenOverOutcome | None = None
    """None as long as it is open. Delivered: what was committed was acknowledged by all."""
    timestamp: Timestamp | None = None
    """Of the commit."""
    after_ms: int | None = None
    """From the start to the outcome."""


class Recovery(msgspec.Struct, frozen=True):
    """One start of a master or of a cell. Times are Unix microseconds."""

    began_us: int
    replay_ms: int
    """To read what there is and to come to the state that it says."""
    after: RecoveryCause = "unknown"
    record_count: int = 0
    """Records of the log; values of a master's store."""
    size_bytes: int = 0
    """Of the log or the store."""
    chunk_count: int = 0
    """Opened, of a cell."""
    orphan_count: int = 0
    """Chunks that the log does not name, most likely of work that a crash ended: removed behind the
    next checkpoint."""
    served_after_ms: int | None = None
    """From the start to serving, of a cell: the oracle and the master have to answer first."""
    transaction_count: int = 0
    """Taken over: by a cell those in doubt or undelivered, by a master its master transactions."""
    transactions: tuple[TakenOver, ...] = ()
    """The first of them, of a cell."""
    loads: tuple[LoadId, ...] = ()
    """Bulk loads that were open and go on, the first of them."""
    stopped_us: int | None = None
    """When it stopped in order; None while it runs, and if it crashed."""


@preload_decoder
class RecoveryPage(msgspec.Struct, frozen=True):
    """The last starts of one server, oldest first."""

    recoveries: tuple[Recovery, ...] = ()
