"""Run a command that changes state once, even if its caller repeats it with the same id.

Owns: the answers by mutation id. A repeat gets the same answer and changes nothing, and a command
that is under way is not started twice. An error that says to repeat the call is not remembered: the
repeat is the next attempt. Remembered answers are bounded in time, number and size.
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
"""A longer answer is that of a batch that read much. A repeat runs the command again."""
UNDER_WAY_MAX: Final = 2_000
"""The number of commands that are under way, at most. They go on after their callers have left, so
they have a bound apart from that of requests."""

Key = tuple[str, str, str]
"""The owner, the command, and the mutation's id."""
Run = Callable[[], Awaitable[bytes]]
"""Returns the answer as it is sent."""


class _End(NamedTuple):
    ended_seconds: float
    answer: bytes
    error: DodonaError | None


class Mutations:
    """The commands of a gateway and their answers. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[Key, asyncio.Task[bytes]] = {}
        self._ended: OrderedDict[Key, _End] = OrderedDict()
        self._size_bytes = 0

    async def once(self, key: Key, run: Run) -> bytes:
        """Return the answer of the first command with that key, or raise its error. The command
        goes on when its caller has left. Raises Overloaded."""
        self._forget()
        end = self._ended.get(key)
        if end is not None:
            return _again(end)
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= UNDER_WAY_MAX:
                raise Overloaded(
                    f"The gateway has {UNDER_WAY_MAX} changes under way. "
                    "Wait, then repeat the command."
                )
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
    """Return the error without its trace, which would keep all data of the command in memory."""
    return type(error)(error.message, **error.attributes)


def _note_failure(task: asyncio.Task[bytes]) -> None:
    """Read the exception of a task. If the callers have left, asyncio then does not log the
    exception."""
    if not task.cancelled():
        task.exception()
