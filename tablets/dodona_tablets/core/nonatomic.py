"""Writes without atomicity: the client's stamp, no locks, last write wins.

Owns: the check of the client's clock and the two durabilities. `sync` answers once the log is
durable; `async` answers from memory, and the shell bounds how much a crash may lose.
Source: the YTsaurus document, "Non-atomic transactions" and "Durability".
"""

from collections.abc import Sequence
from typing import Any

from dodona._core.effects import ReplyAtOnce, ReplyTo
from dodona._core.messages import WriteArrow, WriteNonAtomic, Written
from dodona._core.sizes import wire_bytes
from dodona.errors import DodonaError, InvalidRequest, LimitExceeded
from dodona.types import TIMESTAMP_COUNTER_BITS, SpecialWrites, Timestamp, WireWrite
from dodona_tablets.core.admission import atomicity_mismatch, check_log, check_room
from dodona_tablets.core.cell import Cell, failure_of
from dodona_tablets.core.loading import Loading, gets_chunk
from dodona_tablets.core.records import BatchWritten, RowsWritten
from dodona_tablets.core.tablet import Tablet

OFF_LIMITS = "Transaction timestamp is off limits, check the local clock readings"


class NonAtomicWrites:
    """Checks all of a request, then writes all of it: a request is never half applied."""

    def __init__(self, cell: Cell, loading: Loading) -> None:
        self._cell = cell
        self._loading = loading
        self.row_count = 0
        self.done_count = self.refused_count = self.clock_refused_count = 0
        """Requests; those that become chunks are counted as done by `loading`."""

    def handle(self, route: Any, request: WriteNonAtomic | WriteArrow) -> None:
        try:
            tablet = self._cell.tablet(request.tablet, request.revision)
            self._check(tablet)
            if not (isinstance(request, WriteArrow) and self._is_of_load(request)):
                check_stamp(self._cell, request.stamp)
            if isinstance(request, WriteArrow) and gets_chunk(request):
                self._loading.begin(route, tablet, request)
                return
            written = self._write(request, tablet)
        except DodonaError as error:
            self.refused_count += 1
            self.clock_refused_count += error.message == OFF_LIMITS
            self._cell.reply(route, failure_of(error))
            return
        self.done_count += 1
        effect = ReplyTo if request.is_durable else ReplyAtOnce
        self._cell.effects.append(effect(route, written))

    def _write(self, request: WriteNonAtomic | WriteArrow, tablet: Tablet) -> Written:
        record: RowsWritten | BatchWritten
        writes: Sequence[WireWrite]
        special: SpecialWrites | None = None
        at = tablet.next_stamp(request.stamp)
        if isinstance(request, WriteArrow):
            writes = tablet.writes_of_batch(request.batch)
            record = BatchWritten(request.tablet, at, request.batch)
        else:
            writes, special = request.writes, request.special
            self._check_writes(tablet, writes, special)
            record = RowsWritten(request.tablet, at, writes, special)
        self._cell.append(record)
        self.row_count += len(writes)
        return Written(len(writes), tablet.apply_stamped(writes, at, special))

    def _check_writes(
        self, tablet: Tablet, writes: Sequence[WireWrite], special: SpecialWrites | None
    ) -> None:
        limits, path = self._cell.limits, tablet.assignment.path
        if len(writes) > limits.transaction_rows_max:
            text = f"a request has at most {limits.transaction_rows_max} rows"
            raise LimitExceeded(text, table=path)
        tablet.check_writes(writes)
        if wire_bytes(writes) > limits.transaction_bytes_max:
            text = f"a request writes at most {limits.transaction_bytes_max} bytes"
            raise LimitExceeded(text, table=path)
        if special is not None:
            tablet.check_special(writes, special)

    def _is_of_load(self, request: WriteArrow) -> bool:
        """Whether it has the stamp of a load, which was looked at when that was opened."""
        if not request.load:
            return False
        now_us = self._cell.now.instant_us
        load = self._cell.loads.take_batch(request.load, "none", now_us)
        return request.stamp == load.opened.since

    def _check(self, tablet: Tablet) -> None:
        check_log(self._cell)
        if tablet.is_atomic:
            raise atomicity_mismatch("none", "full", tablet)
        tablet.check_open()
        check_room(self._cell, tablet)


def check_stamp(cell: Cell, stamp: Timestamp) -> None:
    """Whether a client's clock shows about the oracle's time. Raises InvalidRequest."""
    theirs, ours = stamp >> TIMESTAMP_COUNTER_BITS, cell.latest >> TIMESTAMP_COUNTER_BITS
    cell.client_clock.note(stamp - cell.latest)
    if stamp < 0 or abs(theirs - ours) > cell.limits.client_clock_difference_s_max:
        raise InvalidRequest(OFF_LIMITS, client_timestamp=stamp, server_timestamp=cell.latest)
