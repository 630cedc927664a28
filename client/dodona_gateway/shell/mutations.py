"""Commands that change something and whose answer may be lost: they come again, with their id.

Owns: the answers that were given, by mutation id, so that a repetition is answered alike and
changes nothing; and that one that is still under way is not begun twice. An error that says to
repeat the call is no answer: the repetition is the next attempt. What is remembered is bounded in
time, number and size.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from dodona_wire.errors import DodonaError, Overloaded

REMEMBERED_MAX: Final = 20_000
REMEMBERED_SECONDS: Final = 300.0
REMEMBERED_BYTES_MAX: Final = 64 << 20
ANSWER_BYTES_MAX: Final = 1 << 20
"""A longer one is that of a batch which read much; repeated, it is carried out again."""
UNDER_WAY_MAX: Final = 2_000
"""They go on when their callers have gone, so that these are bounded apart from requests."""

Key = tuple[str, str, str]
"""Whose, the command, and the mutation's id."""
Run = Callable[[], Awaitable[bytes]]
"""Gives the answer as it is sent."""


class _End(NamedTuple):
    ended_seconds: float
    answer: bytes
    error: DodonaError | None


class Mutations:
    """Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[Key, asyncio.Task[bytes]] = {}
        self._ended: OrderedDict[Key, _End] = OrderedDict()
        self._size_bytes = 0

    async def once(self, key: Key, run: Run) -> bytes:
        """The answer, or the error, of the first command with that key. It goes on when its caller
        has gone. Raises Overloaded."""
        self._forget()
        end = self._ended.get(key)
        if end is not None:
            return _again(end)
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= UNDER_WAY_MAX:
                raise Overloaded(f"the gateway has {UNDER_WAY_MAX} changes under way")
            task = self._under_way[key] = asyncio.create_task(self._run(key, run))
            task.add_done_callback(_note_failure)
        return await asyncio.shield(task)

    async def _run(self, key: Key, run: Run) -> bytes:
        try:
            answer = await run()
        except DodonaError as error:
            if error.action not in ("repeat", "ask"):
                self._remember(key, b"", _copy(error))
            raise
        finally:
            del self._under_way[key]
        self._remember(key, answer, None)
        return answer

    def _remember(self, key: Key, answer: bytes, error: DodonaError | None) -> None:
        if len(answer) > ANSWER_BYTES_MAX:
            return
        self._ended[key] = _End(self._clock(), answer, error)
        self._size_bytes += len(answer)
        self._forget()

    def _forget(self) -> None:
        oldest_seconds = self._clock() - REMEMBERED_SECONDS
        while self._ended:
            first = next(iter(self._ended.values()))
            is_young = first.ended_seconds > oldest_seconds
            if is_young and self._size_bytes <= REMEMBERED_BYTES_MAX and self._has_room():
                return
            _, forgotten = self._ended.popitem(last=False)
            self._size_bytes -= len(forgotten.answer)

    def _has_room(self) -> bool:
        return len(self._ended) <= REMEMBERED_MAX


def _again(end: _End) -> bytes:
    if end.error is not None:
        raise _copy(end.error)
    return end.answer


def _copy(error: DodonaError) -> DodonaError:
    """The same without its trace, which would keep all that the command worked with."""
    return type(error)(error.message, **error.attributes)


def _note_failure(task: asyncio.Task[bytes]) -> None:
    """Whoever waits for it is told; when nobody does any more, nothing is to be said."""
    if not task.cancelled():
        task.exception()
