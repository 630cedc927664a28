"""Write rows without atomicity: the client's timestamp, no locks, and the last write wins.

Owns: the check of the client's clock, and the two durabilities. With `sync`, the answer waits until
the log is durable. With `async`, the answer comes from memory, and the shell limits how much a
crash may lose.
Source: the YTsaurus document, "Non-atomic transactions" and "Durability".
"""

from typing import Any

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import atomicity_mismatch, check_room
from dodona_tablets.core.records import BatchWritten, RowsWritten
from dodona_tablets.core.requests.loading import Loading, gets_chunk
from dodona_tablets.core.tablet.tablet import CheckedWrites, Tablet
from dodona_wire.cores.effects import ReplyAtOnce, ReplyTo
from dodona_wire.errors import DodonaError, InvalidRequest, LimitExceeded
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.data import WriteArrow, WriteNonAtomic, Written
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, Timestamp

OFF_LIMITS = "Transaction timestamp is off limits, check the local clock readings"


class NonAtomicWrites:
    """The handler of writes without atomicity. It checks a whole request, then writes it. So a
    request is never applied in part."""

    def __init__(self, cell: Cell, outbox: Outbox, loading: Loading) -> None:
        self._cell = cell
        self._outbox = outbox
        self._loading = loading
        self.row_count = 0
        self.done_count = self.refused_count = self.clock_refused_count = 0
        """Requests. `loading` counts those that became chunks as done."""

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
            self._outbox.reply(route, failure_of(error))
            return
        self.done_count += 1
        effect = ReplyTo if request.is_durable else ReplyAtOnce
        self._outbox.send(effect(route, written))

    def _write(self, request: WriteNonAtomic | WriteArrow, tablet: Tablet) -> Written:
        record: RowsWritten | BatchWritten
        at = tablet.next_stamp(request.stamp)
        if isinstance(request, WriteArrow):
            checked = tablet.checked_batch(request.batch)
            record = BatchWritten(request.tablet, at, request.batch)
        else:
            checked = self._checked(tablet, request)
            record = RowsWritten(request.tablet, at, request.writes, request.special)
        self._outbox.append(record)  # from here on nothing may fail
        row_count = len(checked.writes)
        self.row_count += row_count
        return Written(row_count, tablet.apply_stamped(checked, at))

    def _checked(self, tablet: Tablet, request: WriteNonAtomic) -> CheckedWrites:
        writes, special = request.writes, request.special
        limits, path = self._cell.limits, tablet.assignment.path
        if len(writes) > limits.transaction_rows_max:
            text = f"The request has more than {limits.transaction_rows_max} rows. Split it."
            raise LimitExceeded(text, table=path)
        tablet.check_writes(writes)
        if special is not None:
            tablet.check_special(writes, special)
        checked = tablet.checked(writes, special)
        if checked.size_bytes > limits.transaction_bytes_max:
            text = f"The request writes more than {limits.transaction_bytes_max} bytes. Split it."
            raise LimitExceeded(text, table=path)
        return checked

    def _is_of_load(self, request: WriteArrow) -> bool:
        """Return whether the timestamp is that of a load. It was checked when the load was
        opened."""
        if not request.load:
            return False
        now_us = self._cell.now.instant_us
        load = self._cell.loads.take_batch(request.load, "none", now_us)
        return request.stamp == load.opened.since

    def _check(self, tablet: Tablet) -> None:
        self._cell.room.check_log()
        if tablet.is_atomic:
            raise atomicity_mismatch("none", "full", tablet)
        tablet.check_open()
        check_room(self._cell, tablet)


def check_stamp(cell: Cell, stamp: Timestamp) -> None:
    """Raise InvalidRequest if a client's clock is not close to the oracle's time. If the oracle is
    ahead of this machine, because its clock was ahead, this machine's time is allowed, too. A
    timestamp that is a little behind does no harm: the cell raises it above all that was read or
    written."""
    theirs, ours = stamp >> TIMESTAMP_COUNTER_BITS, cell.latest >> TIMESTAMP_COUNTER_BITS
    cell.client_clock.note(stamp - cell.latest)
    difference_s_max = cell.limits.client_clock_difference_s_max
    here = cell.now.unix_us // 1_000_000
    is_like_here = abs(theirs - here) <= difference_s_max and here <= ours
    if stamp < 0 or not (abs(theirs - ours) <= difference_s_max or is_like_here):
        raise InvalidRequest(OFF_LIMITS, client_timestamp=stamp, server_timestamp=cell.latest)
