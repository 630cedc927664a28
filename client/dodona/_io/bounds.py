"""Time limits of calls, for the blocking and the asyncio client.

Owns: the types of what runs protocols, drivers among them, and two ways to limit their time.
`within` limits each call that has no limit of its own. `Until` limits several calls together. The
limit of one call is in `dodona._core.protocol.deadline`, and drivers keep it.
"""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from dodona._core.protocol import steps
from dodona._core.protocol.deadline import check_timeout
from dodona._io.sessions import instant_us
from dodona_wire.types import Timestamp

Result = TypeVar("Result")


class Run(Protocol):
    """Runs the protocols of a blocking client."""

    def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result: ...


class AsyncRun(Protocol):
    """Runs the protocols of an asyncio client."""

    async def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result: ...


class Driver(Protocol):
    """Runs the protocols of a client."""

    def run(self, protocol: steps.Protocol[Result], timeout_ms: int | None = None) -> Result: ...

    def close(self) -> None: ...


class AsyncDriver(Protocol):
    """Runs the protocols of an asyncio client."""

    async def run(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None
    ) -> Result: ...

    def generate_timestamp(self) -> Awaitable[Timestamp]: ...

    async def close(self) -> None: ...


class _Within:
    def __init__(self, run: Run, timeout_ms: int) -> None:
        self._run = run
        self._timeout_ms = timeout_ms

    def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return self._run(protocol, self._timeout_ms if timeout_ms is None else timeout_ms)


class _AsyncWithin:
    def __init__(self, run: AsyncRun, timeout_ms: int) -> None:
        self._run = run
        self._timeout_ms = timeout_ms

    async def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return await self._run(protocol, self._timeout_ms if timeout_ms is None else timeout_ms)


def check_call_timeout(call_timeout_ms: int | None) -> None:
    """Check the default time limit of calls, in ms. Raises InvalidRequest."""
    if call_timeout_ms is not None:
        check_timeout(call_timeout_ms, "call_timeout_ms")


def within(run: Run, timeout_ms: int | None, name: str = "timeout_ms") -> Run:
    """Return `run` with a limit of `timeout_ms` for each call that has no limit of its own. `name`
    is the name of the argument in errors. Raises InvalidRequest."""
    if timeout_ms is None:
        return run
    check_timeout(timeout_ms, name)
    return _Within(run, timeout_ms)


def async_within(run: AsyncRun, timeout_ms: int | None, name: str = "timeout_ms") -> AsyncRun:
    """Return `run` with this limit, as `within` does, for asyncio."""
    if timeout_ms is None:
        return run
    check_timeout(timeout_ms, name)
    return _AsyncWithin(run, timeout_ms)


class _Deadline:
    """The common deadline of several calls."""

    def __init__(self, timeout_ms: int) -> None:
        """Set the deadline `timeout_ms` from now. Raises InvalidRequest."""
        check_timeout(timeout_ms)
        self.timeout_ms = timeout_ms
        self._end_us = instant_us() + timeout_ms * 1000

    @property
    def is_over(self) -> bool:
        return instant_us() >= self._end_us

    def left_ms(self, timeout_ms: int | None = None) -> int:
        """Return the time until the deadline, or `timeout_ms` if that is shorter. At least 1 ms."""
        left_ms = max(1, (self._end_us - instant_us()) // 1000)
        return left_ms if timeout_ms is None else min(left_ms, timeout_ms)


class Until(_Deadline):
    """Runs several calls before one common deadline."""

    def __init__(self, run: Run, timeout_ms: int) -> None:
        """Set the deadline `timeout_ms` from now. Raises InvalidRequest."""
        super().__init__(timeout_ms)
        self._run = run

    def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return self._run(protocol, self.left_ms(timeout_ms))


class AsyncUntil(_Deadline):
    """Runs several calls before one common deadline, for asyncio."""

    def __init__(self, run: AsyncRun, timeout_ms: int) -> None:
        """Set the deadline `timeout_ms` from now. Raises InvalidRequest."""
        super().__init__(timeout_ms)
        self._run = run

    async def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return await self._run(protocol, self.left_ms(timeout_ms))
