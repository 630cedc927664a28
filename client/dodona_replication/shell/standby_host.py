"""Drive a standby on a running event loop, until it has found a log to take over.

Owns: when the core is called, and how its effects are carried out: waits at replicas, and reads of
the documents. The process answers nothing about any log meanwhile.
Must not import: a coordinator.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dodona_replication.core.document import Revisioned
from dodona_replication.core.owner_effects import AskReplica
from dodona_replication.core.standby import FoundLog, Standby, StandbyReport
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError, Unavailable
from dodona_wire.types import Now

_logger: Final = logging.getLogger("dodona.replication")


class StandbyHost:
    """Waits for a log, in one event loop."""

    def __init__(
        self,
        core: Standby,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        links: ReplicaLinks,
        watching: Callable[[], None],
        clock: Callable[[], Now] = read_clock,
    ) -> None:
        """`watching` is called when this process begins to wait for the owners of others."""
        self._core = core
        self._open_coordinator = open_coordinator
        self._links = links
        self._watching = watching
        self._clock = clock
        self._inbox: deque[Callable[[Now], None]] = deque()
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.report = StandbyReport()
        """What it knows, in numbers, as of its last step. Any thread may read this."""
        self._why: str | None = None
        """Why the coordinator could not be asked the last time."""

    async def wait(self) -> FoundLog:
        """Return a log whose owner is silent. Waits without limit. Raises as the coordinator does,
        except that it waits for one that is away."""
        coordinator = await self._open_coordinator()
        self._links.open(self._changed.set)
        try:
            return await self._drive(coordinator)
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait([self._reading])
            await self._links.close()
            await coordinator.close()

    async def _drive(self, coordinator: Coordinator) -> FoundLog:
        is_told = False
        while True:
            self._changed.clear()
            while self._inbox:
                self._inbox.popleft()(self._clock())
            if self._core.found is not None:
                return self._core.found
            if self._core.is_watching and not is_told:
                is_told = True
                self._watching()
            self._core.know(self._links.reachable)
            self._core.tick(self._clock())
            self.report = self._core.report(self._clock())
            self._carry_out(coordinator)
            await self._until_due()

    def _carry_out(self, coordinator: Coordinator) -> None:
        for effect in self._core.take_effects():
            if isinstance(effect, AskReplica):
                self._ask(effect)
            else:
                self._reading = asyncio.create_task(self._read(coordinator))

    def _ask(self, asked: AskReplica) -> None:
        def take(reply: Any) -> None:
            self._input(lambda now: self._core.handle_reply(asked, reply, now))

        self._links.ask(asked, take)

    async def _read(self, coordinator: Coordinator) -> None:
        found: dict[str, Revisioned] | None = None
        error: Exception | None = None
        try:
            found = await coordinator.documents()
            self._why = None
        except Unavailable as reason:
            self._warn(reason)
        except DodonaError as reason:
            if not self._core.is_watching:  # the settings are wrong: say so at the start
                error = reason
            else:
                self._warn(reason)
        except Exception as reason:  # noqa: BLE001 - without a next read it would wait for ever
            error = reason

        def take(now: Now) -> None:
            if error is not None:
                raise error
            self._core.handle_documents(found, now)

        self._input(take)

    def _input(self, take: Callable[[Now], None]) -> None:
        self._inbox.append(take)
        self._changed.set()

    async def _until_due(self) -> None:
        """Wait for an input, or until the core is due."""
        due_us = self._core.next_deadline()
        wait_s = None if due_us is None else max(0, due_us - self._clock().instant_us) / 1e6
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _warn(self, error: DodonaError) -> None:
        """Log why the coordinator can't be asked, once."""
        if error.message != self._why:
            text = f"the coordinator can't be asked: {error.message}"
            fields = {"kind": error.kind, "reason": error.message}
            tell(_logger, logging.WARNING, "no_coordinator", text, **fields)
        self._why = error.message
