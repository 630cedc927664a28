"""How rows in bulk are sent to a tablet: to write them directly, or to stage them for a load. Pure.

Owns: the requests, the meaning of their answers, and which requests may be repeated. `bulk` decides
which rows go to which tablet.
"""

from typing import Any, Protocol

import msgspec

from dodona._core.protocol.attempts import may_read_again, may_write_again
from dodona._core.protocol.context import expect, was_never_sent
from dodona._core.writing.writing import Account
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import DataRequest, WriteArrow, Written
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import StageArrow, Staged
from dodona_wire.types import BatchKind, LoadId, TabletId, Timestamp


class Sender(Protocol):
    """An object that makes messages with rows, and interprets their answers."""

    def request(self, tablet: Tablet, stream: bytes, place: int) -> DataRequest:
        """Return the message. `place` is its number among the messages of this sender."""
        ...

    def expect(self, tablet: TabletId) -> int:
        """Count one more message to the tablet. Return its number."""
        ...

    def accept(self, tablet: TabletId, reply: Reply) -> bool:
        """Return whether the message is done. Otherwise it is sent again."""
        ...

    def refuse(self, tablet: TabletId, failure: Failure) -> bool:
        """Return whether the message may be sent again."""
        ...

    def attributes(self) -> dict[str, Any]:
        """Return attributes for an error."""
        ...


class Writer:
    """A sender of rows to a table without atomicity."""

    def __init__(self, stamp: Timestamp, is_durable: bool, load: LoadId, kind: BatchKind) -> None:
        self._stamp = stamp
        self._is_durable = is_durable
        self._load = load
        self._kind: BatchKind = kind
        self._account = Account()

    def request(self, tablet: Tablet, stream: bytes, place: int) -> WriteArrow:
        stamped = self._stamp, self._is_durable, stream
        return WriteArrow(tablet.tablet, tablet.revision, *stamped, self._load, self._kind)

    def expect(self, tablet: TabletId) -> int:
        self._account.expect(tablet)
        return 0

    def accept(self, tablet: TabletId, reply: Reply) -> bool:
        self._account.apply(tablet, expect(reply, Written))
        return True

    def refuse(self, tablet: TabletId, failure: Failure) -> bool:
        if failure.kind == "unavailable" and not was_never_sent(failure):
            self._account.lose(tablet)
        return may_write_again(failure)

    def attributes(self) -> dict[str, Any]:
        return dict(self._account.attributes())


class StagedBatch(msgspec.Struct, frozen=True):
    """Rows of a load that are staged in a tablet."""

    path: str
    tablet: TabletId
    chunk: int
    row_count: int


class Stager:
    """A sender of rows for a load. A message may be repeated. The cell knows it by its number in
    its call, and the call by a number that no other call has. So a task may send its rows again and
    again."""

    def __init__(
        self,
        path: str,
        load: LoadId,
        kind: BatchKind,
        task: tuple[int, int],
        call: Timestamp,
        fault_at: FaultAt = no_faults,
    ) -> None:
        """Make a sender. `task` is the partition and the attempt."""
        self._fault_at = fault_at
        self._path = path
        self._load = load
        self._kind: BatchKind = kind
        self._call = *task, call
        self._count = 0
        self.staged: list[StagedBatch] = []

    def request(self, tablet: Tablet, stream: bytes, place: int) -> StageArrow:
        part = (*self._call, place)
        return StageArrow(tablet.tablet, tablet.revision, self._load, part, self._kind, stream)

    def expect(self, tablet: TabletId) -> int:
        self._count += 1
        return self._count

    def accept(self, tablet: TabletId, reply: Reply) -> bool:
        done = expect(reply, Staged)
        if self._fault_at(FaultPoint.LOSE_STAGED):
            return False
        if done.row_count:
            self.staged.append(StagedBatch(self._path, tablet, done.chunk, done.row_count))
        return True

    def refuse(self, tablet: TabletId, failure: Failure) -> bool:
        return may_read_again(failure)

    def attributes(self) -> dict[str, Any]:
        return {"load": self._load}
