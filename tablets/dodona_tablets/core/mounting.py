"""Which tablets this cell serves: what the master assigned, made so.

Owns: heartbeats and the way of a tablet between mounted and unmounted. A mounted tablet serves
only after its fence: a timestamp that the oracle issued after the mount (COMMIT-PROTOCOL rule 9).
An unmount waits for the transactions that hold locks in the tablet.
"""

from typing import NamedTuple

from dodona._core.effects import Append, AskTimestamps, SendHeartbeat
from dodona._core.messages import Assignment, Heartbeat, MountedTablet, TabletAssignment
from dodona.types import NULL_TIMESTAMP, Revision, TabletId, Timestamp
from dodona_tablets.core.cell import Cell
from dodona_tablets.core.records import TabletMounted, TabletUnmounted
from dodona_tablets.core.tablet import Tablet


class FenceToken(NamedTuple):
    """Whose fence the oracle's answer is: one tablet's mount."""

    tablet: TabletId
    revision: Revision


class Mounting:
    """Follows the master's assignments. The cell's own fence is `node`'s."""

    def __init__(self, cell: Cell, address: str) -> None:
        self._cell = cell
        self._address = address
        self._sequence = 0
        self._heartbeat_at_us = 0

    def tick(self) -> None:
        """Heartbeat when due; finish unmounts; ask again for fences that never came."""
        now_us = self._cell.now.instant_us
        for tablet in self._cell.tablets.values():
            if tablet.is_closing and tablet.active_count == 0:
                self._unmount(tablet)
        if now_us >= self._heartbeat_at_us:
            for tablet in self._cell.tablets.values():
                if tablet.is_mounted and tablet.fence == NULL_TIMESTAMP:
                    self._ask_fence(tablet)
            self.send_heartbeat()

    def next_deadline_us(self) -> int:
        return self._heartbeat_at_us

    def send_heartbeat(self) -> None:
        """Tell the master now what is mounted, and when due again."""
        cell = self._cell
        self._heartbeat_at_us = cell.now.instant_us + cell.limits.heartbeat_period_ms * 1000
        self._sequence += 1
        mounted = [
            MountedTablet(tablet.assignment.tablet, tablet.assignment.revision)
            for tablet in cell.tablets.values()
            if tablet.is_mounted and tablet.fence != NULL_TIMESTAMP
        ]
        body = Heartbeat(cell.id, self._address, tuple(mounted), self._sequence)
        cell.effects.append(SendHeartbeat(body))

    def handle_assignment(self, assignment: Assignment) -> None:
        """Mount what is new, close what is gone. An answer to an older heartbeat is stale."""
        if assignment.sequence != self._sequence:
            return
        assigned = {tablet.tablet for tablet in assignment.tablets}
        for wanted in assignment.tablets:
            self._mount(wanted)
        for tablet_id, tablet in self._cell.tablets.items():
            if tablet_id not in assigned and tablet.is_mounted and not tablet.is_closing:
                tablet.is_closing = True
                if tablet.active_count == 0:
                    self._unmount(tablet)

    def _mount(self, wanted: TabletAssignment) -> None:
        tablet = self._cell.tablets.get(wanted.tablet)
        if tablet is None:
            tablet = self._cell.tablets[wanted.tablet] = Tablet(wanted)
        elif wanted.revision <= tablet.assignment.revision or tablet.active_count:
            return
        else:
            tablet.mount(wanted)
        self._cell.effects.append(Append(TabletMounted(wanted)))
        self._ask_fence(tablet)

    def _unmount(self, tablet: Tablet) -> None:
        tablet.unmount()
        self._cell.effects.append(Append(TabletUnmounted(tablet.assignment.tablet)))
        self.send_heartbeat()

    def _ask_fence(self, tablet: Tablet) -> None:
        token = FenceToken(tablet.assignment.tablet, tablet.assignment.revision)
        self._cell.effects.append(AskTimestamps(token))

    def handle_fence(self, token: FenceToken, fence: Timestamp) -> None:
        """Serve the tablet, from now on and for transactions that begin after this timestamp."""
        tablet = self._cell.tablets[token.tablet]
        if tablet.assignment.revision == token.revision and tablet.fence == NULL_TIMESTAMP:
            tablet.fence = fence
            self.send_heartbeat()
