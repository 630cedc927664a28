"""Notice that a cell has moved away from a server that does not answer.

Owns: when the master is asked where a cell is, although no call to the cell has failed. A machine
that stops sends nothing, so calls to it would wait until they time out. If another node has taken
the cell over, they end much sooner: their connection is replaced.

Limits: one question at a time, and longer pauses between them the longer a cell is quiet. Without a
quiet cell nothing is asked. If the master knows that no other node can take the cell over, it is
asked once a minute.
Belongs to one event loop.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Container
from typing import Final

from dodona_wire.net.peer import Peer
from dodona_wire.types import CellId

LOOK_SECONDS: Final = 0.25
"""The time between two looks at the connections, while calls wait."""
QUIET_SECONDS: Final = 0.75
"""A server that has sent nothing for so long may have failed. It may also have much to do."""
PAUSE_RATIO: Final = 0.3
"""The pause before the next question, in relation to the time for which the cell has been quiet."""
FIXED_SECONDS: Final = 60.0
"""The pause if no other node can take the cell over. That can change: clusters get copies later."""

Peers = Callable[[], dict[CellId, tuple[str, Peer]]]
Learn = Callable[[], Awaitable[Container[CellId] | None]]
Replace = Callable[[CellId], object]


class Moves:
    """Looks at connections to cells while calls wait."""

    def __init__(self, peers: Peers, learn: Learn, replace: Replace) -> None:
        """`learn` asks the master where all cells are. It returns those that may move, or None
        without an answer. `replace` gives a cell a connection to the address that is known now."""
        self._loop = asyncio.get_running_loop()
        self._peers = peers
        self._learn = learn
        self._replace = replace
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._ask_at: dict[Peer, float] = {}
        """When to ask about a cell that is quiet, by its connection."""

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
        now = self._loop.time()
        peers = [peer for _, peer in self._peers().values()]
        if any(peer.is_waiting for peer in peers):
            self.expect()
        self._ask_at = {it: at for it, at in self._ask_at.items() if it in peers}
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and any(self._is_due(peer, now) for peer in peers):
            self._asking = self._loop.create_task(self._ask())

    def _is_due(self, peer: Peer, now: float) -> bool:
        return peer.quiet_s(now) >= QUIET_SECONDS and now >= self._ask_at.get(peer, 0.0)

    async def _ask(self) -> None:
        may_move = await self._learn()
        now = self._loop.time()
        for cell, (_, peer) in list(self._peers().items()):
            if may_move is not None and cell not in may_move:
                self._ask_at[peer] = now + FIXED_SECONDS
            elif (quiet_s := peer.quiet_s(now)) >= QUIET_SECONDS:
                self._ask_at[peer] = now + quiet_s * PAUSE_RATIO * random.uniform(0.8, 1.2)
                self._replace(cell)
