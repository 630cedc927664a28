"""What runs the protocols of a client, and bounds on its time. Of both faces.

Owns: the types of what runs protocols, and the two ways to bound it: `within` bounds each call
that has no bound of its own; `Until` bounds several calls together. A bound of one call is in
`dodona._core.protocol.deadline`, and drivers keep it.
"""

from typing import Protocol, TypeVar

from dodona._core.protocol import steps
from dodona._core.protocol.deadline import check_timeout
from dodona._io.sessions import instant_us

Result = TypeVar("Result")


class Run(Protocol):
    """What a blocking client runs its protocols with."""

    def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result: ...


class AsyncRun(Protocol):
    """What an asyncio client runs its protocols with."""

    async def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result: ...


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
    """Raises InvalidRequest."""
    if call_timeout_ms is not None:
        check_timeout(call_timeout_ms, "call_timeout_ms")


def within(run: Run, timeout_ms: int | None, name: str = "timeout_ms") -> Run:
    """The same, which bounds each call that has no bound of its own. Raises InvalidRequest."""
    if timeout_ms is None:
        return run
    check_timeout(timeout_ms, name)
    return _Within(run, timeout_ms)


def async_within(run: AsyncRun, timeout_ms: int | None, name: str = "timeout_ms") -> AsyncRun:
    """As `within`."""
    if timeout_ms is None:
        return run
    check_timeout(timeout_ms, name)
    return _AsyncWithin(run, timeout_ms)


class _Deadline:
    """Of several calls together."""

    def __init__(self, timeout_ms: int) -> None:
        """Raises InvalidRequest."""
        check_timeout(timeout_ms)
        self.timeout_ms = timeout_ms
        self._end_us = instant_us() + timeout_ms * 1000

    @property
    def is_over(self) -> bool:
        return instant_us() >= self._end_us

    def left_ms(self, timeout_ms: int | None = None) -> int:
        """Until the end, or `timeout_ms` if that is shorter; 1 at least."""
        left_ms = max(1, (self._end_us - instant_us()) // 1000)
        return left_ms if timeout_ms is None else min(left_ms, timeout_ms)


class Until(_Deadline):
    """Runs several calls that end in one time together."""

    def __init__(self, run: Run, timeout_ms: int) -> None:
        """Raises InvalidRequest."""
        super().__init__(timeout_ms)
        self._run = run

    def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return self._run(protocol, self.left_ms(timeout_ms))


class AsyncUntil(_Deadline):
    """As `Until`."""

    def __init__(self, run: AsyncRun, timeout_ms: int) -> None:
        """Raises InvalidRequest."""
        super().__init__(timeout_ms)
        self._run = run

    async def __call__(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None, /
    ) -> Result:
        return await self._run(protocol, self.left_ms(timeout_ms))
