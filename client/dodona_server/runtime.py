"""The runtime: it is the only owner of a core, and it keeps one rule.

Owns: the order of effects, the group commit, and the end of the process after an unexpected error.
The rule: effects are carried out in order, and nothing behind an `Append` leaves before that append
is durable. While one flush is in the worker thread the core goes on, and the new appends are the
next flush. With nothing pending, replies leave without a wait. The loop itself makes a short flush
that a client waits for: to hand it over takes longer. `gathering` decides for a distant log.

Invariants:
- One thread (the event loop's) touches the core, one method at a time. If an effect's handler calls
  the core while the core is driven, that call waits for its turn.
- The log sees one `append` at a time, in order, and never a record twice.
- Another process may take a `DistantLog` over. So an answer that no append is before leaves only
  with proof that this process owns the log. Without proof, the answer waits for a flush that has no
  records.
- Any error of the core or the log ends the process: it restarts and recovers. No such error is
  survived here, so a core whose state is in doubt never answers.

Knows nothing of sockets: each request brings a `Replier`. Must not import a server package.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, get_args

from dodona_server.flushes import (
    INLINE_BYTES_MAX,
    Batch,
    FlushCounts,
    InlineRule,
    RuntimeLimits,
    RuntimeStatistics,
)
from dodona_server.gathering import Gatherer
from dodona_server.log_thread import DistantLog, Log, LogThread
from dodona_server.process import read_clock, require_assertions, stop_process
from dodona_server.repliers import CLOSING, NO_CELL, OVERLOADED, Asker, Replier
from dodona_wire.cores.effects import HELD_EFFECTS, Append, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.codec import ONE_WAY, RequestEnvelope
from dodona_wire.messages.families import Reply, Request
from dodona_wire.types import Now

ANSWERS: Final = HELD_EFFECTS | {ReplyAtOnce}
"""The effects that only the owner of a log may carry out, if others may take it over."""
CELL_MESSAGES: Final = frozenset(get_args(CellMessage))

_logger: Final = logging.getLogger("dodona.runtime")


class Core(Protocol):
    """What every core can do. `handle_durable` and `handle_cell_message` are optional."""

    def handle(self, route: Any, body: Any, now: Now) -> None: ...
    def tick(self, now: Now) -> None: ...
    def next_deadline(self) -> int | None: ...
    def take_effects(self) -> list[Effect]: ...


LATE_US_MIN: Final = 2_000_000
"""A longer wait for the disk means that something is wrong with the disk."""


class Runtime:
    """Drives a core on the running event loop. The module's text says what it promises.

    `log` may be None for a core that appends nothing. A `Log` gets a thread. `handlers` carry out
    the effects other than appends and replies, by type. They must neither block nor raise. `stop`
    ends the process.
    `foresee` gets the requests of a frame just before the core does. It gets an empty sequence once
    their effects have been carried out: no other input comes between. `keep_posted` tells the core
    what only a shell can see. It is called after each flush and before each tick. `watch_flush`
    gets each group that became durable, and when its flush began, before its effects leave.
    """

    def __init__(
        self,
        core: Core,
        log: Log | DistantLog | None,
        handlers: Mapping[type[Any], Callable[[Any], None]] | None = None,
        *,
        limits: RuntimeLimits | None = None,
        clock: Callable[[], Now] = read_clock,
        stop: Callable[[BaseException], Any] = stop_process,
        foresee: Callable[[Sequence[RequestEnvelope]], None] | None = None,
        keep_posted: Callable[[Now], None] = lambda _: None,
        watch_flush: Callable[[Batch, int, Now], None] | None = None,
    ) -> None:
        require_assertions()
        self._core = core
        self._log = log
        self._handlers = dict(handlers or {})
        self._limits = limits or RuntimeLimits()
        self._clock = clock
        self._stop = stop
        self._foresee = foresee
        self._keep_posted = keep_posted
        self._watch_flush = watch_flush
        self._handle_durable: Callable[[Any, Now], None] | None = getattr(
            core, "handle_durable", None
        )
        self._handle_cell_message: Callable[[Any, Now], None] | None = getattr(
            core, "handle_cell_message", None
        )
        age_ms_max = self._limits.at_once_age_ms_max
        self._distant = log if isinstance(log, DistantLog) else None
        inline_us_max = 0 if self._distant is not None else self._limits.inline_flush_us_max
        self._inline = InlineRule(inline_us_max)
        self._at_once_age_us_max = None if age_ms_max is None else age_ms_max * 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_inside = False
        self._is_closing = self._is_closed = False
        self._failure: BaseException | None = None
        self._afterwards: list[Callable[[], None]] = []
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        # The batch in the worker thread, the batch that gathers behind it, and the effects of the
        # newer one. The next effect in order joins these (None: nothing is pending).
        self._in_flight: Batch | None = None
        self._gathering: Batch | None = None
        self._tail: list[Effect] | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._log_thread: LogThread | None = None
        self._gatherer: Gatherer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_us: int | None = None
        self._flushes = FlushCounts()
        self._flush_began_us = 0
        self._stands_still = False
        self._refused_count = 0

    def start(self) -> None:
        """Start on the running loop, with the effects that the core already has."""
        assert self._loop is None, "a runtime starts once"
        self._loop = asyncio.get_running_loop()
        if self._distant is not None:
            self._gatherer = Gatherer(self._loop, lambda: self._enter(_nothing, ()))
            self._distant.begin(self._hear_of_distant_flush)
        elif self._log is not None:
            self._log_thread = LogThread(self._log, self._hear_of_flush)
        self._enter(_nothing, ())

    @property
    def failure(self) -> BaseException | None:
        """The unexpected error after which the core is not driven any more, or None."""
        return self._failure

    async def finish(self) -> None:
        """Refuse new requests, and wait until all earlier ones are durable and their answers have
        left. The core may still produce effects."""
        self._is_closing = True
        await self._idle.wait()

    async def close(self) -> None:
        """Refuse new requests, let the log finish, end the thread. The core gets no more input,
        because its effects cannot be carried out any more. Raises TimeoutError."""
        if self._timer is not None:
            self._timer.cancel()
        async with asyncio.timeout(self._limits.close_ms_max / 1000):
            await self.finish()
        self._is_closed = True
        if self._log_thread is not None:
            self._log_thread.close(self._limits.close_ms_max)

    # Inputs

    def handle(self, route: tuple[Replier, int], body: Request) -> None:
        """Handle one request. Its answer goes to the route's replier, perhaps within this call."""
        refusal = self._refusal()
        if refusal is not None:
            self._refused_count += 1
            route[0].reply(route[1], refusal)
        else:
            self._enter(self._core.handle, (route, body))

    def handle_frame(
        self, replier: Replier, envelopes: list[RequestEnvelope], size_bytes: int
    ) -> None:
        """Handle all requests of a frame at one instant. Effects are carried out after all."""
        refusal = self._refusal()
        if refusal is None:
            take = self._take_frame if self._foresee is None else self._take_foreseen_frame
            self._enter(take, (replier, envelopes))
            if self._gathering is not None:  # records of this frame may be in it
                self._gathering.size_bytes += size_bytes
            if size_bytes > INLINE_BYTES_MAX:
                self._inline.pause(self._clock().instant_us)
            return
        self._refused_count += len(envelopes)
        for request_id, _ in envelopes:
            if request_id != ONE_WAY:  # a one-way message is repeated until it is answered
                replier.reply(request_id, refusal)

    def call(self, method: Callable[..., None], *arguments: Any) -> None:
        """Give the core another input: `method(*arguments, now)`. Never refused before the end."""
        self._enter(method, arguments)

    def call_from_thread(self, method: Callable[..., None], *arguments: Any) -> None:
        """As `call`, a little later, for other threads. Does nothing after the loop's end."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.call, method, *arguments)

    def call_each(self, method: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> None:
        """As `call`, once for each, at one instant. Effects are carried out after all of them."""
        self._enter(_call_each, (method, arguments))

    def call_afterwards(self, callback: Callable[[], None]) -> None:
        """Call back once the effects of the present input have been carried out. So the answers
        that a replier gathered meanwhile can leave in one frame."""
        if self._is_inside:
            self._afterwards.append(callback)
        else:
            assert self._loop is not None
            self._loop.call_soon(callback)

    async def ask(self, body: Request, timeout_ms: int = 30_000) -> Reply:
        """Put a request to the core and wait for the answer. A late answer is a Failure."""
        assert self._loop is not None
        asker = Asker(self._loop.create_future())
        self.handle((asker, 1), body)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asker.future
        except TimeoutError:
            return Failure("unavailable", f"There was no answer within {timeout_ms} ms.")

    def fail(self, error: BaseException) -> None:
        """End the process, because something has put the core's state in doubt."""
        self._failure = error
        self._stop(error)

    def why_late(self) -> str | None:
        """Return how long the disk has not answered, if that is long, or what a distant log lacks;
        else None."""
        if self._distant is not None and (why := self._distant.shortage(self._clock())):
            return why
        age_us = self._waiting_age_us()
        if age_us > LATE_US_MIN:
            who = "the disk has" if self._distant is None else "the copies of the log have"
            return f"{who} not answered for {age_us // 1000} ms"
        return None

    def stalled_us(self) -> int:
        """Return for other threads how long a flush has blocked the loop by now, else 0."""
        return self._clock().instant_us - self._flush_began_us if self._stands_still else 0

    def statistics(self) -> RuntimeStatistics:
        """Return the current statistics; cheap."""
        return self._flushes.statistics(
            self._refused_count, self._waiting_count(), self._waiting_age_us()
        )

    # The core

    def _enter(self, method: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self._is_closed:
            return
        if self._is_inside:
            self._inbox.append((method, arguments))
            return
        if self._failure is not None:
            raise RuntimeError("the core failed with an unexpected error and has stopped") from (
                self._failure
            )
        self._is_inside = True
        try:
            now = self._step(method, arguments)
            while self._inbox or self._is_group_ready():
                step = self._inbox.popleft() if self._inbox else (self._start_flush, ())
                now = self._step(*step)
            self._schedule_tick(now)
            if self._afterwards:
                callbacks, self._afterwards = self._afterwards, []
                for callback in callbacks:
                    callback()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the core is in doubt
            self.fail(error)
        finally:
            self._is_inside = False

    def _step(self, method: Callable[..., None], arguments: tuple[Any, ...]) -> Now:
        now = self._clock()
        method(*arguments, now)
        self._carry_out(self._core.take_effects(), now)
        return now

    def _take_frame(self, replier: Replier, envelopes: list[RequestEnvelope], now: Now) -> None:
        handle = self._core.handle
        for request_id, body in envelopes:
            if type(body) not in CELL_MESSAGES:
                handle((replier, request_id), body, now)
            elif self._handle_cell_message is not None:
                self._handle_cell_message(body, now)
            elif request_id != ONE_WAY:
                replier.reply(request_id, NO_CELL)

    def _take_foreseen_frame(
        self, replier: Replier, envelopes: list[RequestEnvelope], now: Now
    ) -> None:
        assert self._foresee is not None
        self._foresee(envelopes)
        self._take_frame(replier, envelopes, now)
        self._carry_out(self._core.take_effects(), now)
        self._foresee(())

    def _schedule_tick(self, now: Now) -> None:
        deadline_us = self._core.next_deadline()
        if deadline_us is None or self._is_closing:
            return
        if self._timer is not None:
            assert self._timer_deadline_us is not None
            if self._timer_deadline_us <= deadline_us:
                return  # it will fire early, find nothing due, and be set again
            self._timer.cancel()
        assert self._loop is not None
        # Never below a millisecond: a core that is always due must not starve the sockets.
        delay_us = max(1000, deadline_us - now.instant_us)
        self._timer_deadline_us = deadline_us
        self._timer = self._loop.call_later(delay_us / 1e6, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._enter(self._tick, ())

    def _tick(self, now: Now) -> None:
        deadline_us = self._core.next_deadline()
        if deadline_us is not None and deadline_us <= now.instant_us:
            self._keep_posted(now)
            self._core.tick(now)

    # Effects

    def _carry_out(self, effects: list[Effect], now: Now) -> None:
        tail = self._tail
        is_held = tail is not None and self._must_hold(now)
        if self._distant is not None and effects and not self._distant.may_answer(now):
            is_held = True
            if not ANSWERS.isdisjoint(map(type, effects)):  # a flush under way proves too little
                tail = (self._gathering or self._gathering_batch(now)).effects
        for effect in effects:
            kind = type(effect)
            if kind in HELD_EFFECTS or (is_held and kind is ReplyAtOnce):
                if tail is None:
                    self._deliver(effect)
                else:
                    tail.append(effect)
            elif kind is Append:
                tail = self._gather(effect, now)
            else:
                self._deliver(effect)

    def _must_hold(self, now: Now) -> bool:
        """Return whether the oldest waiting append is too old for an early answer."""
        oldest = self._in_flight or self._gathering
        assert oldest is not None
        age_us_max = self._at_once_age_us_max
        return age_us_max is not None and now.instant_us - oldest.since_us > age_us_max

    def _deliver(self, effect: Any) -> None:
        kind = type(effect)
        if kind is ReplyTo or kind is ReplyAtOnce:
            replier, request_id = effect.route
            replier.reply(request_id, effect.body)
        else:
            self._handlers[kind](effect)

    def _gather(self, effect: Any, now: Now) -> list[Effect]:
        """Put a record into the next flush. Effects behind it join the effects of that flush."""
        batch = self._gathering or self._gathering_batch(now)
        batch.records.append(effect.record)
        if self._handle_durable is not None:
            batch.effects.append(effect)
        return batch.effects

    def _gathering_batch(self, now: Now) -> Batch:
        """Begin the batch that the next flush makes durable."""
        assert self._gathering is None
        assert self._log is not None, "an append, but no log"
        assert self._loop is not None
        batch = self._gathering = Batch(now.instant_us)
        self._tail = batch.effects
        self._idle.clear()
        if self._in_flight is None and self._gatherer is None:
            # Not now: what has come by now joins it, after one more look at the sockets.
            self._loop.call_soon(self._loop.call_soon, self._enter, self._start_flush, ())
        return batch

    # The log

    def _is_group_ready(self) -> bool:
        """Return whether to start a flush of the distant log now."""
        batch = self._gathering
        if self._gatherer is None or batch is None or self._in_flight is not None:
            return False
        return self._gatherer.is_ready(self._answer_count(batch), has_records=bool(batch.records))

    def _answer_count(self, batch: Batch) -> int:
        return len(batch.effects) - (0 if self._handle_durable is None else len(batch.records))

    def _start_flush(self, now: Now) -> None:
        batch = self._gathering
        assert batch is not None
        assert self._in_flight is None, "one flush at a time"
        self._in_flight, self._gathering = batch, None
        self._flush_began_us = now.instant_us
        if not self._inline.admits(batch, now.instant_us):
            appender = self._distant or self._log_thread
            assert appender is not None
            appender.append(batch.records)
            return
        assert self._log is not None
        self._stands_still = True
        self._log.append(batch.records)  # an error ends the process, as in the thread
        self._stands_still = False
        end = self._clock()
        self._inline.note(end.instant_us - now.instant_us, end.instant_us)
        self._finish_flush(end)

    def _hear_of_flush(self, error: BaseException | None) -> None:
        """Pass on a report of the log's thread. Nothing here touches the core."""
        assert self._loop is not None
        if error is None:
            self._loop.call_soon_threadsafe(self._enter, self._finish_flush, ())
        else:
            self._loop.call_soon_threadsafe(self.fail, error)

    def _hear_of_distant_flush(self, error: BaseException | None) -> None:
        if error is None:
            self._enter(self._finish_flush, ())
        else:
            self.fail(error)

    def _finish_flush(self, now: Now) -> None:
        batch = self._in_flight
        assert batch is not None, "a flush ended that was not begun"
        if batch.records:
            self._flushes.add(now.instant_us - self._flush_began_us, len(batch.records))
        if self._watch_flush is not None:
            self._watch_flush(batch, self._flush_began_us, now)
        self._keep_posted(now)
        self._in_flight = None
        if self._gatherer is not None:
            self._gatherer.rule.note_flush(sum(map(self._answer_count, [batch, *self._batches()])))
        if self._gathering is None:
            self._tail = None
        for effect in batch.effects:
            if type(effect) is Append:
                assert self._handle_durable is not None
                self._handle_durable(effect.record, now)
            else:
                self._deliver(effect)
        if self._gathering is None:
            self._idle.set()
        elif self._gatherer is None:  # with one, the next flush starts when it is ready
            if self._inline.admits(self._gathering, now.instant_us):  # after what leaves now
                assert self._loop is not None
                self._loop.call_soon(self._enter, self._start_flush, ())
            else:
                self._start_flush(now)

    # Limits

    def _refusal(self) -> Failure | None:
        if self._tail is None:
            return CLOSING if self._is_closing else None
        if self._is_closing:
            return CLOSING
        limits = self._limits
        if self._distant is not None and (why := self.why_late()):
            text = f"{why[0].upper()}{why[1:]}. Wait, then repeat the call."
            return Failure("unavailable", text, {"is_sent": False})
        if self._waiting_count() >= limits.waiting_count_max:
            return OVERLOADED
        size_bytes = sum(it.size_bytes for it in self._batches())
        return OVERLOADED if size_bytes >= limits.waiting_bytes_max else None

    def _waiting_count(self) -> int:
        return sum(len(it.records) + len(it.effects) for it in self._batches())

    def _batches(self) -> list[Batch]:
        return [it for it in (self._in_flight, self._gathering) if it is not None]

    def _waiting_age_us(self) -> int:
        oldest = self._in_flight or self._gathering
        return 0 if oldest is None else self._clock().instant_us - oldest.since_us


def _nothing(now: Now) -> None:
    """Do nothing, so that only the core's effects are carried out."""


def _call_each(method: Callable[..., None], arguments: Iterable[tuple[Any, ...]], now: Now) -> None:
    for each in arguments:
        method(*each, now)
