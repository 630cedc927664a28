"""The first look of a process that takes a log over: the document with which it begins.

Owns: how a log without a document begins, and the proof that a document is not older than the log.
It waits for a coordinator that is away, and for replicas to say who they are.
Must not import: a coordinator.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dodona_replication.core.document import Document, Revisioned
from dodona_replication.core.errors import DocumentTooOld
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_wire.errors import DodonaError, Unavailable

READ_AGAIN_S: Final = 0.2
"""The pause before a coordinator that was away is asked again."""
MEMBERS_POLL_S: Final = 0.02
"""The pause before it is looked again which replicas are known."""
MEMBERS_S_MAX: Final = 0.5
"""How long a take-over waits for members of the set to say who they are."""


class Copies(NamedTuple):
    """How many replicas a new log gets."""

    wanted: int = 3
    least: int = 2
    """The smallest set that it may have later (`copies_min`)."""


class FirstLook:
    """Looks for the document of one log."""

    def __init__(
        self,
        log: str,
        coordinator: Coordinator,
        links: ReplicaLinks,
        warn: Callable[[DodonaError], None],
    ) -> None:
        """`warn` is called with the reason each time the coordinator can't be asked."""
        self._log = log
        self._coordinator = coordinator
        self._links = links
        self._warn = warn

    async def document(self, copies: Copies) -> Revisioned:
        """Return the document of the log. Without one, make it: with replicas that are there.
        Raises DocumentTooOld, and what the coordinator raises."""
        while True:
            seen = await self._read()
            members = () if seen is None else seen.document.members
            await self._meet(members or copies.wanted)
            if await self._is_too_old(seen):
                continue
            if seen is not None:
                return seen
            document = Document.initial(self._links.replicas[: copies.wanted], copies.least)
            await self._coordinator.compare(self._log, None, document)  # then look what is there

    async def _read(self) -> Revisioned | None:
        """Read the document, and wait for a coordinator that is away: nothing can begin without
        it."""
        while True:
            try:
                return await self._coordinator.read(self._log)
            except Unavailable as error:
                self._warn(error)
            await asyncio.sleep(READ_AGAIN_S)

    async def _meet(self, wanted: Sequence[str] | int) -> None:
        """Wait until these replicas are known, or so many. Known members may be away, so the wait
        for them is short."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + MEMBERS_S_MAX
        while True:
            known = self._links.replicas
            if isinstance(wanted, int):
                is_met = len(known) >= wanted
            else:
                is_met = {*wanted} <= {*known} or (bool(known) and loop.time() >= until_s)
            if is_met:
                return
            await asyncio.sleep(MEMBERS_POLL_S)

    async def _is_too_old(self, seen: Revisioned | None) -> bool:
        """Return whether a document was read that is not the newest one. Raises DocumentTooOld if
        replicas have a higher epoch than the newest document. Then a take-over could get a set
        without the newest entries (R32)."""
        epoch = 0 if seen is None else seen.document.epoch
        replicas = self._links.replicas
        found = await asyncio.gather(*[self._links.ask_epoch(it, epoch) for it in replicas])
        highest, replica = max(zip(found, replicas, strict=True), default=(0, ""))
        if highest <= epoch:
            return False
        if await self._read() != seen:
            return True
        raise DocumentTooOld(
            f"the document of log {self._log} has epoch {epoch}, but the replica at "
            f"{self._links.place_of(replica)} has epoch {highest}: the document is older than the "
            "log. Stop all processes that may own the log, and bring the newest documents back",
            log=self._log,
            replica=replica,
        )
