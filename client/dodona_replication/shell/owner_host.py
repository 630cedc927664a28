"""Drive the cores that own one log, on a running event loop.

Owns: when they are called, and how their effects are carried out: requests to replicas, compares
and the watch of the document. The host of the log's records gives `Hearing`, and gets what was
recovered, what is acknowledged, and the end.

Invariants:
- One input at a time: an answer that comes within another input waits for its turn.
- Each request gets one answer. A compare that fails in any way is in doubt, and the core repeats
  it. On one revision that is harmless.
- The cores survive a change of the event loop. `leave` answers all that is under way with failures.
  `join` goes on in the new loop. No lease gets longer by that.
- After the end nothing more is asked.

Must not import: a coordinator.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dodona_replication.core.claimant import Claimant
from dodona_replication.core.coordination import InDoubt
from dodona_replication.core.document import Revisioned
from dodona_replication.core.errors import LogLost
from dodona_replication.core.owner import Owner
from dodona_replication.core.owner_effects import (
    Acknowledged,
    AskCoordinator,
    AskReplica,
    Ended,
    Identity,
    OwnerLimits,
    Replay,
)
from dodona_replication.core.owner_report import report_of
from dodona_replication.core.take_over import TakeOver
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.first_look import Copies, FirstLook
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_wire.cores.copies import CopiesReport
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.messages.replicas import EntriesStored, Entry, LogEntries
from dodona_wire.types import Now

TELL_AGAIN_S: Final = 5.0
"""The time between two log lines about a take-over that waits."""
MOVES: Final = (LogEntries, EntriesStored)
"""Answers that bring a take-over on. A replica answers a fence or a ping again and again."""

_logger: Final = logging.getLogger("dodona.replication")


class TakeOverStuck(Exception):
    """A take-over has not got on for so long that this process gave it up. It has served nothing
    in its epoch, and never will."""


class Hearing(NamedTuple):
    """What the host of a log's records is called with. None of these may raise."""

    replay: Callable[[Sequence[Entry]], None]
    """Entries that the log had before, in order."""
    acknowledged: Callable[[int], None]
    """All entries up to this index are safe."""
    heard: Callable[[], None]
    """A replica has answered, so reads may be possible that were not."""
    ended: Callable[[Ended], None]
    failed: Callable[[BaseException], None]
    """A core failed with an unexpected error: it is in doubt, and the process has to end."""


class OwnerHost:
    """The owner of one log in one process. Call `join`, `take_over` and `open`, in this order."""

    def __init__(
        self,
        identity: Identity,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        links: ReplicaLinks,
        limits: OwnerLimits,
        hearing: Hearing,
        clock: Callable[[], Now] = read_clock,
    ) -> None:
        """`open_coordinator` is called in each event loop in which this host lives."""
        self.identity = identity
        self.links = links
        self.taking: TakeOver | None = None
        self.owner: Owner | None = None
        self._open_coordinator = open_coordinator
        self._limits = limits
        self._hearing = hearing
        self.wanted_count = 0
        self._clock = clock
        self._coordinator: Coordinator | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0
        self._inbox: deque[tuple[Claimant, Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_inside = False
        self._began_us = 0
        self.take_over_us: int | None = None
        """How long the take-over took, from the first look at the document until the log was
        open."""
        self._why: str | None = None
        """Why the coordinator could not be asked the last time."""
        self._changed = asyncio.Event()
        self._end: Ended | None = None
        self._failure: BaseException | None = None
        self._refusal: DodonaError | None = None
        """Why the coordinator refuses this process, which has not taken the log over."""
        self._moves = 0
        """The answers that brought a take-over on: entries came, or a replica stored some."""

    # ---- the event loop

    async def join(self) -> None:
        """Live in the running event loop. Raises as the coordinator does."""
        assert self._coordinator is None
        self._coordinator = await self._open_coordinator()
        self._changed = asyncio.Event()
        self.links.open(self._offer)
        if self._core is not None:
            self._watch()
            self._offer()
            self._input(self._core, self._core.tick)

    async def leave(self) -> None:
        """Leave the event loop. The log stays this process's until another one takes it over."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.links.close()
        await coordinator.close()

    # ---- what the host of the records does

    async def take_over(
        self, copies: Copies, expected: Revisioned | None = None, stuck_s: float | None = None
    ) -> None:
        """Take the log over, and pass on what it has. A log without a document begins. Raises
        LogLost, DocumentTooOld, TakeOverStuck, and what the coordinator raises.

        - `expected`: the document as it was when its owner was silent. If there is another one, the
          log is left alone.
        - `stuck_s`: this process gives the take-over up if it has not got on for so long. None: it
          waits for replicas without limit."""
        assert self._coordinator is not None
        self.wanted_count = copies.wanted
        self._began_us = self._clock().instant_us
        look = FirstLook(self.identity.log, self._coordinator, self.links, self._warn)
        try:
            async with asyncio.timeout(stuck_s):
                seen = await look.document(copies)
        except TimeoutError as error:
            text = f"the document of log {self.identity.log} was not found in {stuck_s} s"
            raise TakeOverStuck(text) from error
        if expected is not None and seen != expected:
            raise lost(self.identity.log, Ended("its document has changed since", seen))
        self.taking = TakeOver(self.identity, seen, self._limits, self._clock())
        self._watch()
        self._drive(self.taking)
        telling = asyncio.create_task(self._tell_missing(seen.document.members))
        try:
            await self._until(lambda: self.taking is None or self.taking.is_recovered, stuck_s)
        finally:
            telling.cancel()

    async def open(self, opening: bytes) -> None:
        """Own the log: return when the opening record is acknowledged and the wait is over, however
        long that takes. Raises LogLost."""
        assert self.taking is not None
        owner = self.owner = Owner(self.taking, opening, self._clock())
        self.taking = None
        self._offer()
        self._drive(owner)
        await self._until(lambda: owner.is_open(self._clock()), None)
        self.take_over_us = self._clock().instant_us - self._began_us

    async def until_open(self, stuck_s: float | None) -> None:
        """Wait until the log is open. Raises LogLost, and TakeOverStuck if replicas do not bring it
        on for so long from now on. None: it waits without limit."""
        owner = self._owner
        await self._until(lambda: owner.is_open(self._clock()), stuck_s)

    async def _tell_missing(self, members: Sequence[str]) -> None:
        """Log which members of the set can't be reached, as long as the take-over waits."""
        log = self.identity.log
        while True:
            await asyncio.sleep(TELL_AGAIN_S)
            missing = " ".join(it for it in members if it not in self.links.replicas)
            text = f"the take-over of log {log} waits for its replicas"
            fields = {"log": log, "not_found": missing}
            tell(_logger, logging.WARNING, "take_over_waits", text, **fields)

    def append(self, records: Sequence[bytes]) -> int:
        """Append entries to the log. Returns the index of the last one, which is safe once it is
        acknowledged."""
        owner = self._owner
        for it in records:
            owner.append(it, self._clock())
        self._drive(owner)
        return owner.last_index

    def cut(self, index: int) -> None:
        """Drop what is before an acknowledged entry that has a checkpoint."""
        if not self._owner.is_ended:
            self._input(self._owner, self._owner.cut, index)

    def ping(self) -> None:
        """Ask all replicas for an answer."""
        self._input(self._owner, self._owner.ping)

    async def release(self) -> None:
        """Give the log up, if all that was appended is acknowledged. Returns when that is durable,
        or when another process has the log. Waits for the coordinator without limit."""
        owner = self.owner
        if owner is None or owner.acknowledged_index < owner.last_index:
            return
        if not owner.is_ended:
            self._input(owner, owner.release)
        await self._settled(lambda: owner.is_ended)

    def report(self) -> CopiesReport:
        """Return what is known of the log, which is open, and of its copies. Call this in the event
        loop."""
        coordinator = self._coordinator
        return replace(
            report_of(self._owner, self.links.look(), self._clock()),
            wanted_count=self.wanted_count,
            coordinator_silent_us=0 if coordinator is None else coordinator.silent_us(),
            take_over_us=self.take_over_us,
        )

    # ---- the document

    def _watch(self) -> None:
        self._do(self._pass_documents())

    async def _pass_documents(self) -> None:
        """Pass each change of the document on, until this host leaves the event loop."""
        assert self._coordinator is not None
        try:
            async with aclosing(self._coordinator.watch(self.identity.log, 0)) as documents:
                async for it in documents:
                    if (core := self._core) is not None:
                        self._input(core, core.handle_document, it)
        except DodonaError as error:
            # Safe without a watch: replicas refuse an owner that is too old.
            self._warn(error)

    async def _compare(self, core: Claimant, effect: AskCoordinator) -> None:
        assert self._coordinator is not None
        compare = effect.compare
        answer: Any = InDoubt("this process left the event loop")
        try:
            answer = await self._coordinator.compare(
                self.identity.log, compare.revision, compare.document
            )
            self._why = None
        except DodonaError as error:
            answer = InDoubt(error.message)
            self._warn(error)
            if isinstance(error, InvalidRequest) and core is self.taking:
                self._refusal = error  # no repeat helps: an operator has to grant something
        finally:
            self._input(core, core.handle_answer, compare, answer)

    def _warn(self, error: DodonaError) -> None:
        """Log why the coordinator can't be asked, once."""
        if error.message != self._why:
            log = self.identity.log
            text = f"the coordinator of log {log} can't be asked: {error.message}"
            fields = {"log": log, "kind": error.kind, "reason": error.message}
            tell(_logger, logging.WARNING, "no_coordinator", text, **fields)
        self._why = error.message

    # ---- the cores

    @property
    def _core(self) -> TakeOver | Owner | None:
        return self.owner or self.taking

    @property
    def _owner(self) -> Owner:
        assert self.owner is not None, "the log is not open"
        return self.owner

    def _offer(self) -> None:
        """Name the replicas that may join the set."""
        if self.owner is not None and not self.owner.is_ended:
            owner, replicas, wanted = self.owner, self.links.replicas, self.wanted_count
            self._input(owner, lambda now: owner.offer(replicas, now, wanted))

    def _input(self, core: Claimant, method: Callable[..., None], *arguments: Any) -> None:
        """Give a core an input, unless it is over. Within another input, a little later."""
        self._inbox.append((core, method, arguments))
        if not self._is_inside:
            self._take_inputs()

    def _take_inputs(self) -> None:
        self._is_inside = True
        try:
            while self._inbox and self._failure is None:
                core, method, arguments = self._inbox.popleft()
                if core is self._core:
                    method(*arguments, self._clock())
                    self._carry_out(core)
            self._set_timer()
            self._hearing.heard()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the core is in doubt
            self._fail(error)
        finally:
            self._is_inside = False
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._changed.set()
            self._hearing.failed(error)

    def _drive(self, core: Claimant) -> None:
        """Carry out the effects that a core has."""
        self._input(core, lambda _: None)

    def _carry_out(self, core: Claimant) -> None:
        for effect in core.take_effects():
            match effect:
                case AskReplica():
                    self._ask(core, effect)
                case AskCoordinator() if self._coordinator is not None:
                    self._do(self._compare(core, effect))
                case AskCoordinator():
                    pass  # a core that is told nothing asks again
                case Replay(entries=entries):
                    self._hearing.replay(entries)
                case Acknowledged(index=index):
                    self._hearing.acknowledged(index)
                case Ended():
                    self._end = effect
                    self._hearing.ended(effect)

    def _ask(self, core: Any, asked: AskReplica) -> None:
        sent_us = self._clock().instant_us

        def take(reply: Any) -> None:
            self._moves += isinstance(reply, MOVES)
            self._input(core, core.handle_reply, asked, reply, sent_us)

        self.links.ask(asked, take)

    def _do(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _set_timer(self) -> None:
        """See to it that the core is called when it is due. An earlier timer stays, and this method
        looks again when it fires: each answer moves the deadline of the next ping."""
        core = self._core
        due_us = None if core is None else core.next_deadline()
        if due_us is None or self._coordinator is None:
            return
        if self._timer is not None:
            if self._timer_due_us <= due_us:
                return
            self._timer.cancel()
        self._timer_due_us = due_us
        delay_us = max(1_000, due_us - self._clock().instant_us)
        self._timer = asyncio.get_running_loop().call_later(delay_us / 1e6, self._fire)

    def _fire(self) -> None:
        self._timer = None
        core = self._core
        if core is not None:
            self._input(core, core.tick)

    async def _until(self, is_so: Callable[[], bool], stuck_s: float | None) -> None:
        """Wait until this is so. Raises LogLost if the log is lost before, TakeOverStuck if the
        take-over does not get on, and the unexpected error of a core."""

        def is_over() -> bool:
            is_bad = self._end is not None or self._refusal is not None
            return is_so() or is_bad or self._failure is not None

        while not is_over():
            if not await self._moves_on(is_over, stuck_s):
                assert stuck_s is not None, "without a limit, it waits on"
                raise self._stuck(stuck_s)
        if self._failure is not None:
            raise self._failure
        if self._end is not None:
            raise lost(self.identity.log, self._end)
        if self._refusal is not None:
            raise self._refusal

    async def _moves_on(self, is_over: Callable[[], bool], stuck_s: float | None) -> bool:
        """Wait until the take-over gets on, or is over. Return whether it did in time."""
        moves = self._moves
        with suppress(TimeoutError):
            async with asyncio.timeout(stuck_s):
                await self._settled(lambda: is_over() or self._moves > moves)
        return is_over() or self._moves > moves

    def _stuck(self, stuck_s: float) -> TakeOverStuck:
        core, log = self._core, self.identity.log
        assert core is not None
        members = core.ownership.members
        missing = [it for it in members if it not in self.links.reachable]
        places = ", ".join(map(self.links.place_of, missing)) or "none"
        return TakeOverStuck(
            f"the take-over of log {log} has not got on for {stuck_s:g} s; members of its "
            f"set that do not answer: {places}"
        )

    async def _settled(self, is_so: Callable[[], bool]) -> None:
        while not is_so() and self._failure is None:
            self._changed.clear()
            await self._changed.wait()


def lost(log: str, end: Ended) -> LogLost:
    """Return the error with which a process ends that does not own its log any more."""
    return LogLost(f"log {log} is not this process's any more: {end.reason}", log=log)
