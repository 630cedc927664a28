"""Serve the tablets that the master assigned: mount, freeze, unmount and drop them.

Owns: heartbeats, and the path of a tablet between mounted, frozen, unmounted and dropped. A mounted
tablet serves only when it has all of its rows (see `importing`), and after its fence. The fence is
a timestamp that the oracle issued after the mount (rule 9 of
`docs/explanation/commit-protocol.md`). Unmounting and freezing wait for the transactions that hold
locks in the tablet, and until chunks have all of its rows. An unmounted tablet is kept until the
master says that no table needs it. Each change is logged, then reported.
"""

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.mounting.importing import Importing, take_over
from dodona_tablets.core.records import (
    ClusterJoined,
    TabletAdjusted,
    TabletMounted,
    TabletsDropped,
    TabletUnmounted,
)
from dodona_tablets.core.tablet.tablet import FROZEN, UNMOUNTED, Tablet
from dodona_tablets.core.upkeep.caching import Caching
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_wire.cores.effects import AskTimestamps, SendHeartbeat
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.catalog import Assignment, Heartbeat, MountedTablet, TabletAssignment
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.types import NO_CLUSTER, NULL_TIMESTAMP, ClusterId, Revision, TabletId, Timestamp

STORED_TOLD_MAX: Final = 1_000
"""The most tablets that one heartbeat names as kept without being served."""
SLICE_TABLETS: Final = 100
"""The number of tablets that are made, mounted, frozen or unmounted in one slice: about 3 ms."""
SLICE_PERIOD_MS: Final = 5
"""The time between two slices. Commits and reads go on there."""
PROMPT_TABLETS_MAX: Final = 1_000
"""How many tablets a cell may name in a heartbeat period to confirm news that changed nothing here.
A full heartbeat names every tablet. So cells with few tablets confirm without delay."""


class FenceToken(NamedTuple):
    """The mount of a tablet for which the oracle's answer is the fence."""

    tablet: TabletId
    revision: Revision


class Mounting:
    """The part of a cell that follows the master's assignments. `node` has the cell's own fence."""

    def __init__(
        self,
        cell: Cell,
        outbox: Outbox,
        caching: Caching,
        flushing: Flushing,
        address: str,
        epoch: int,
    ) -> None:
        self._cell = cell
        self._outbox = outbox
        self._flushing = flushing
        self._address = address
        self._epoch = epoch
        self._importing = Importing(cell, outbox, caching)
        self._sequence = 0
        self._revision = Revision(0)
        """The revision of the last assignment that was taken."""
        self._heartbeat_at_us = self._fences_at_us = self._sent_us = 0
        self._is_due = False
        """Whether the cell sends a heartbeat at the end of this batch of events."""
        self._is_known = False
        """Whether the master has heard everything about the cell. Then heartbeats are short."""
        self._is_answered = False
        """Whether the last heartbeat was answered."""
        self._full_sequence = 0
        """The sequence number of the last heartbeat that was not short, if nothing has changed
        since."""
        self._needed: frozenset[TabletId] = frozenset()
        """The tablets that the last assignment names, with their sources."""
        self._to_take: deque[TabletAssignment] = deque()
        """The tablets of the last assignment that are still to be made, mounted or adjusted, in its
        order."""
        self._ending: dict[TabletId, None] = {}
        """Tablets that are to be unmounted or frozen."""
        self._to_try: deque[TabletId] = deque()
        """Ending tablets that are still to be looked at since the last tick."""
        self._unreported: Assignment | None = None
        """The last assignment, until it was taken completely."""
        self._work_at_us = 0
        self._copies: tuple[MountedTablet, ...] = ()
        """The tablets of the last assignment that only had to take over rows, and have them."""
        self._told_until = self._heard_until = TabletId(0)
        """The last tablet that was named as stored, and the last for which the master has
        answered."""
        self.dropped_count = 0

    def tick(self) -> None:
        """Finish the work that waited, and repeat requests that were not answered."""
        if not self._to_try:
            self._to_try.extend(self._ending)
        self.work()
        self._importing.ask()
        now_us = self._cell.now.instant_us
        if now_us >= self._fences_at_us:
            self._fences_at_us = now_us + self._cell.limits.heartbeat_period_ms * 1000
            for tablet in self._cell.tablets.values():
                if tablet.is_mounted and tablet.fence == NULL_TIMESTAMP:
                    self._ask_fence(tablet)

    def beat(self) -> None:
        """Make a heartbeat due if it is time."""
        if self._cell.now.instant_us >= self._heartbeat_at_us:
            self._set_due()

    @property
    def is_quiet(self) -> bool:
        """Whether no work is under way: no tick has anything to do before the next event."""
        return self._is_known and not (self._ending or self._importing.is_waiting)

    def deadline_us(self, tick_at_us: int) -> int:
        """Return when to tick at the latest. This is before `tick_at_us` if a heartbeat is due, or
        if `work` has something to do."""
        at_us = min(self._heartbeat_at_us, tick_at_us)
        return min(self._work_at_us, at_us) if self._to_try or self._to_take else at_us

    def work(self) -> bool:
        """Do the next slice of the work of assignments, if it is time. Return whether it was."""
        now_us = self._cell.now.instant_us
        is_left = bool(self._to_try or self._to_take)
        if not is_left or now_us < self._work_at_us:
            return False
        self._work_at_us = now_us + SLICE_PERIOD_MS * 1000
        self._do_slice()
        return True

    def _do_slice(self) -> None:
        """Do one slice. Tablets that end come first, since others may take over their rows."""
        for _ in range(SLICE_TABLETS):
            if self._to_try:
                tablet = self._cell.tablets.get(self._to_try.popleft())
                if tablet is not None:
                    self.finish(tablet)
            elif self._to_take:
                self._take(self._to_take.popleft())
            else:
                break
        if not self._to_take and self._unreported is not None:
            assignment, self._unreported = self._unreported, None
            self._report_copies(assignment)

    def send_heartbeat(self) -> None:
        """Make a full heartbeat due, since the served tablets have changed. One heartbeat reports
        all changes of this batch of events, since it names every tablet. Between slices, it waits
        for the last slice or for its period. Answers to older heartbeats are stale from now on."""
        self._is_known = False
        self._full_sequence = 0
        self._set_due()

    def _set_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._sequence += 1

    def tell_news(self) -> None:
        """Send the heartbeat, if one is due, at the end of a batch of events."""
        if not self._is_due:
            return
        cell = self._cell
        is_between_slices = bool(self._to_try or self._to_take)
        if is_between_slices and cell.now.instant_us < self._heartbeat_at_us:
            return
        self._is_due = False
        if cell.take_retained_news():
            self._is_known = False
        if not self._is_known:
            self._full_sequence = self._sequence
        may_hold = self._is_known and self._is_answered  # otherwise, perhaps none gets through
        hold_ms = cell.limits.heartbeat_hold_ms if may_hold else 0
        self._is_answered = False
        self._sent_us = cell.now.instant_us
        self._heartbeat_at_us = self._sent_us + (cell.limits.heartbeat_period_ms + hold_ms) * 1000
        body = Heartbeat(
            cell.id,
            self._address,
            () if self._is_known else (*self._mounted(), *self._copies),
            self._sequence,
            self._revision,
            cell.cluster,
            self._stored(),
            is_short=self._is_known,
            hold_ms=hold_ms,
            epoch=self._epoch,
        )
        if not cell.fault_at(FaultPoint.LOSE_HEARTBEAT):
            self._outbox.send(SendHeartbeat(body))
        if cell.fault_at(FaultPoint.REPEAT_HEARTBEAT):
            self._sequence += 1
            self._full_sequence = 0 if self._is_known else self._sequence
            self._outbox.send(SendHeartbeat(replace(body, sequence=self._sequence)))

    def _mounted(self) -> list[MountedTablet]:
        return [
            MountedTablet(
                it.assignment.tablet,
                it.assignment.revision,
                it.assignment.mode,
                it.retained_timestamp,
            )
            for it in self._cell.tablets.values()
            if it.is_mounted and it.fence != NULL_TIMESTAMP
        ]

    def _stored(self) -> tuple[TabletId, ...]:
        """Return tablets that are kept and not served. If there are too many, return those behind
        the last ones that the master has heard of, and begin again after the end."""
        tablets = self._cell.tablets.items()
        stored = sorted([number for number, it in tablets if not it.is_mounted])
        count_max = 1 if self._cell.fault_at(FaultPoint.TELL_ONE_STORED) else STORED_TOLD_MAX
        if len(stored) > count_max:
            at = bisect_right(stored, self._heard_until)
            stored = (stored[at:] + stored[:at])[:count_max]
            self._told_until = stored[-1]
        return tuple(stored)

    def handle_assignment(self, assignment: Assignment) -> None:
        """Close, make, mount, adjust and forget tablets, as the master says.

        The order is: close the tablets that are not to be served, make new ones, mount and adjust
        the rest, and forget dropped ones. So a tablet takes over rows of closed tablets before they
        are mounted again. An answer to an older heartbeat is stale. So is an answer of a master
        that has lost its store to another master.
        """
        if assignment.sequence != self._sequence:
            return
        self._is_answered = True
        period_us = self._cell.limits.heartbeat_period_ms * 1000
        self._heartbeat_at_us = min(self._heartbeat_at_us, self._sent_us + period_us)
        if assignment.is_short:
            self._heard_until = self._told_until
            self._drop(assignment)
            return
        if assignment.revision < self._newest_revision():
            return
        if assignment.cluster != self._cell.cluster:
            self._join(assignment.cluster)
            return
        is_news = assignment.revision != self._revision
        self._revision = assignment.revision
        self._heard_until = self._told_until
        self._needed = _needed(assignment)
        wanted_by_id = {wanted.tablet: wanted for wanted in assignment.tablets}
        for number, tablet in self._cell.tablets.items():
            wanted = wanted_by_id.get(number)
            if tablet.is_mounted and not (wanted and _goes_on(tablet, wanted)):
                tablet.is_closing = True
                self._ending[number] = None
        self._to_try = deque(self._ending)
        self._to_take = deque([it for it in assignment.tablets if self._is_news(it)])
        self._unreported = assignment
        has_work = bool(self._to_try or self._to_take)
        is_full_news = is_news or not assignment.may_be_short
        self._is_known = not (is_full_news or has_work) and (
            assignment.sequence == self._full_sequence
        )
        if self._is_known:
            self._set_due()  # the master may hold the next heartbeat until it has other news
        elif is_news and not has_work:
            wait_us = len(self._cell.tablets) * period_us // PROMPT_TABLETS_MAX
            self._heartbeat_at_us = min(self._heartbeat_at_us, self._sent_us + wait_us)
            self.beat()
        self._do_slice()
        self._drop(assignment)
        self._importing.ask()

    def _is_news(self, wanted: TabletAssignment) -> bool:
        """Return whether the assignment asks for a change of this tablet."""
        tablet = self._cell.tablets.get(wanted.tablet)
        if tablet is None or not tablet.is_mounted or tablet.is_closing:
            return tablet is None or wanted.revision > tablet.assignment.revision
        known = tablet.assignment
        is_other = tablet.is_freezing or known.mode != wanted.mode
        return is_other or known.settings != wanted.settings

    def _newest_revision(self) -> Revision:
        """Return the newest revision that is known here, from assignments or from the log."""
        tablets = self._cell.tablets.values()
        revisions = [it.assignment.revision for it in tablets]
        return max([self._revision, self._cell.dropped_revision, *revisions])

    def _join(self, cluster: ClusterId) -> None:
        """Join a cluster if the log is empty. A log that belongs to another cluster stays with that
        cluster."""
        if self._cell.cluster == NO_CLUSTER:
            self._cell.join(cluster)
            self._outbox.append(ClusterJoined(cluster))
            self.send_heartbeat()

    def _take(self, wanted: TabletAssignment) -> None:
        cell = self._cell
        tablet = cell.tablets.get(wanted.tablet)
        if tablet is None:
            if self._importing.is_ready(wanted):
                tablet = Tablet(wanted)
                cell.add(tablet)
                take_over(cell, tablet)
                self._log_mount(tablet)
        elif tablet.is_mounted:
            if not tablet.is_closing:
                self._adjust(tablet, wanted)
        elif wanted.revision > tablet.assignment.revision and not tablet.active_count:
            tablet.mount(wanted)
            self._log_mount(tablet)

    def _log_mount(self, tablet: Tablet) -> None:
        self._outbox.append(TabletMounted(tablet.assignment))
        if tablet.is_mounted:
            self._ask_fence(tablet)

    def _drop(self, assignment: Assignment) -> None:
        """Forget the tablets that no table needs. A tablet that is still served stays, even if the
        master names it. A tablet that this assignment asks for stays, too: the next assignment says
        again that it may go."""
        if not assignment.dropped:
            return
        cell = self._cell
        gone = []
        for number in dict.fromkeys(assignment.dropped):
            tablet = cell.tablets.get(number)
            if tablet is not None and not tablet.is_mounted and number not in self._needed:
                gone.append(number)
        if gone and not cell.fault_at(FaultPoint.KEEP_DROPPED):
            self._outbox.append(TabletsDropped(tuple(gone), assignment.revision))
            cell.drop(gone, assignment.revision)
            self.dropped_count += len(gone)

    def _report_copies(self, assignment: Assignment) -> None:
        known = self._copies
        self._copies = tuple(
            MountedTablet(wanted.tablet, wanted.revision, UNMOUNTED)
            for wanted in assignment.tablets
            if wanted.mode == UNMOUNTED and wanted.tablet in self._cell.tablets
        )
        if any(copy not in known for copy in self._copies):
            self.send_heartbeat()

    # Changes in the same mount

    def _adjust(self, tablet: Tablet, wanted: TabletAssignment) -> None:
        """Change the settings immediately. Freeze the tablet only when no transaction holds
        locks."""
        mode, settings = tablet.assignment.mode, tablet.assignment.settings
        if settings != wanted.settings:
            self._log_adjustment(tablet, TabletAdjusted(wanted.tablet, mode, wanted.settings))
        tablet.is_freezing = wanted.mode == FROZEN != mode
        if tablet.is_freezing:
            self._ending[wanted.tablet] = None
            self.finish(tablet)
        elif mode != wanted.mode:
            self._log_adjustment(
                tablet, TabletAdjusted(wanted.tablet, wanted.mode, wanted.settings)
            )
            self.send_heartbeat()

    def _log_adjustment(self, tablet: Tablet, record: TabletAdjusted) -> None:
        tablet.adjust(record.mode, record.settings)
        self._outbox.append(record)

    def finish(self, tablet: Tablet) -> None:
        """Unmount or freeze, unless a transaction still holds locks here, or rows are in memory
        only."""
        number = tablet.assignment.tablet
        if not tablet.is_mounted or not (tablet.is_closing or tablet.is_freezing):
            self._ending.pop(number, None)
            return
        if tablet.active_count or self._cell.fault_at(FaultPoint.LINGER):
            return
        if not self._flushing.settle(tablet):
            return
        self._ending.pop(number, None)
        if tablet.is_closing:
            self._outbox.append(TabletUnmounted(number))
            self._cell.unmount(tablet)
            self._flushing.drop_all(tablet)
            self.send_heartbeat()
        elif tablet.is_freezing:
            self._log_adjustment(tablet, TabletAdjusted(number, FROZEN, tablet.assignment.settings))
            self.send_heartbeat()

    # Fences and rows

    def _ask_fence(self, tablet: Tablet) -> None:
        if not tablet.missing:
            token = FenceToken(tablet.assignment.tablet, tablet.assignment.revision)
            self._outbox.send(AskTimestamps(token))

    def handle_fence(self, token: FenceToken, fence: Timestamp) -> None:
        """Serve the tablet from now on, for transactions that begin after this timestamp."""
        if self._cell.fault_at(FaultPoint.LOSE_TABLET_FENCE):
            return
        tablet = self._cell.tablets.get(token.tablet)
        if tablet is None or tablet.assignment.revision != token.revision:
            return  # the tablet was unmounted meanwhile
        if tablet.fence == NULL_TIMESTAMP:
            self._cell.serve(tablet, fence)
            self.send_heartbeat()

    def tell_rows(self, question: AskRows) -> None:
        self._importing.tell_rows(question)

    def take_rows(self, page: TellRows) -> None:
        tablet = self._importing.take_rows(page)
        if tablet is not None and tablet.is_mounted:
            self._ask_fence(tablet)


def _needed(assignment: Assignment) -> frozenset[TabletId]:
    """Return the tablets that an assignment names, with their sources."""
    return frozenset(
        number
        for wanted in assignment.tablets
        for number in (wanted.tablet, *(source.tablet for source in wanted.sources))
    )


def _goes_on(tablet: Tablet, wanted: TabletAssignment) -> bool:
    """Return whether a tablet stays served in its current mount."""
    return wanted.mode != UNMOUNTED and wanted.revision <= tablet.assignment.revision
