"""Notice that a cell has moved away from a server that does not answer.

Owns: when the master is asked where a cell is, although no call to the cell has failed. A machine
that stops sends nothing, so calls to it would wait until they time out. If another node has taken
the cell over, they end much sooner: their connection is replaced.

Limits: one question at a time, and pauses between them. Without a quiet cell nothing is asked.
Belongs to one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dodona_wire.net.peer import Peer
from dodona_wire.types import CellId

LOOK_SECONDS: Final = 0.25
"""The time between two looks at the connections, while calls wait."""
QUIET_SECONDS: Final = 0.75
"""A server that has sent nothing for so long may have failed. It may also have much to do."""
OFTEN_SECONDS: Final = 5.0
"""For so long, each look asks. A node takes a cell over in less time."""
PAUSE_SECONDS: Final = 2.0
"""The time between two questions afterwards."""

Peers = Callable[[], dict[CellId, tuple[str, Peer]]]
Learn = Callable[[], Awaitable[None]]
Replace = Callable[[CellId], object]


class Moves:
    """Looks at connections to cells while calls wait."""

    def __init__(self, peers: Peers, learn: Learn, replace: Replace) -> None:
        """`learn` asks the master where all cells are. `replace` gives a cell a connection to the
        address that is known now."""
        self._loop = asyncio.get_running_loop()
        self._peers = peers
        self._learn = learn
        self._replace = replace
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def expect(self) -> None:
        """Look at the connections from now on, as long as calls wait."""
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _look(self) -> None:
        self._timer = None
        peers = [peer for _, peer in self._peers().values()]
        if any(peer.is_waiting for peer in peers):
            self.expect()
        now = self._loop.time()
        quiet_s = max([peer.quiet_s(now) for peer in peers], default=0.0)
        pause_s = 0.0 if quiet_s < OFTEN_SECONDS else PAUSE_SECONDS
        is_asking = self._asking is not None and not self._asking.done()
        if quiet_s >= QUIET_SECONDS and not is_asking and now - self._asked_at >= pause_s:
            self._asked_at = now
            self._asking = self._loop.create_task(self._ask())

    async def _ask(self) -> None:
        await self._learn()
        now = self._loop.time()
        for cell, (_, peer) in list(self._peers().items()):
            if peer.quiet_s(now) >= QUIET_SECONDS:
                self._replace(cell)
