"""Run queries of a gateway's callers, each in a separate process.

Owns: these processes: their number, that each runs one query at a time, and their end. A process
ends with a query that was cancelled or passed its deadline, and with the gateway. A query can only
harm its own process; its caller then gets an error that names the limit. A process that is well
waits for the next query, which so begins within a millisecond. Belongs to one event loop.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec

from dodona._core.protocol.steps import Protocol
from dodona._core.reading.query import Query
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona_gateway.core.answer_budget import too_much
from dodona_gateway.core.query_work import (
    LENGTH_BYTES,
    NOT_READ,
    Asked,
    Compute,
    Computed,
    Plan,
    Planned,
    QueryTable,
    Refused,
    Said,
    Shape,
    decode_said,
    frame,
)
from dodona_wire.errors import DodonaError, LimitExceeded, Unavailable

MODULE: Final = "dodona_gateway.shell.query_child"
MEMORY_FACTOR: Final = 2
"""The data that is read, and the memory of DuckDB with the result, each have the same bound."""
REPLY_EXTRA_BYTES: Final = 1 << 20
ROWS_PER_BATCH: Final = 2_048
PIECE_BYTES: Final = 1 << 20
ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TZDIR")
"""The gateway's environment variables that a process gets. None of them has a key."""
ALLOCATORS: Final = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Settings of the allocators, so that a process maps little more memory than it uses."""

Run = Callable[[Protocol[Any]], Awaitable[Any]]


class QueryBounds(NamedTuple):
    """The bounds of one query."""

    answer_bytes_max: int
    cpu_seconds_max: int
    memory_mib_max: int


class QueryProcess:
    """One process, which is idle or runs one query."""

    def __init__(self, process: Process, bounds: QueryBounds) -> None:
        self._process = process
        self._bounds = bounds
        self.is_idle = True
        """Whether the process is well, and has answered every request."""

    @classmethod
    async def start(cls, bounds: QueryBounds) -> "QueryProcess":
        """Start a process. Raises Unavailable if the system has no room for a process."""
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE),
                *(str(bounds.memory_mib_max * MEMORY_FACTOR), str(os.getpid())),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=PIECE_BYTES,
                env={**kept, **ALLOCATORS},
                start_new_session=True,  # Ctrl-C ends the gateway only
            )
        except OSError as error:
            raise Unavailable(
                f"The gateway can't start a process for the query: {error}"
            ) from error
        return cls(process, bounds)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended, also by itself."""
        return self._process.returncode is not None

    async def plan(self, query: Query, rows_max: int | None) -> None:
        """Find out which rows and columns the query needs. Raises InvalidRequest, LimitExceeded."""
        limits = msgspec.structs.replace(
            query.limits,
            memory_mib_max=self._bounds.memory_mib_max,
            result_bytes_max=self._bounds.answer_bytes_max,
            rows_per_batch=ROWS_PER_BATCH,
        )
        tables = [QueryTable(it.path, it.schema.columns) for it in query.sources]
        cpu_seconds_max = self._bounds.cpu_seconds_max
        plan = Plan(query.text, tables, limits, cpu_seconds_max, rows_max, dict(query.parameters))
        said = await self._ask(plan)
        if not isinstance(said, Planned) or len(said.wanted) != len(query.sources):
            raise await self._ended()
        for source, wanted in zip(query.sources, said.wanted, strict=True):
            source.wanted = wanted

    async def compute(self, query: Query, shape: Shape) -> bytes:
        """Return the result of a query whose tables were read, in that shape. The tables are
        released."""
        tables = [it.data for it in query.sources]
        counts = [NOT_READ if it is None else len(it.to_batches()) for it in tables]
        data = [it for it in tables if it is not None]
        del tables
        for source in query.sources:
            source.data = None
        said = await self._ask(Compute(shape, counts), data)
        if not isinstance(said, Computed):
            raise await self._ended()
        return said.content

    async def _ask(self, asked: Asked, data: list[Any] | None = None) -> Planned | Computed:
        self.is_idle = False
        try:
            await self._send(frame(asked))
            while data:
                table = data.pop(0)
                await self._send_buffer(table.schema.serialize())
                for batch in table.to_batches():
                    await self._send_buffer(batch.serialize())
                del table
            content = await self._receive()
        except (OSError, asyncio.IncompleteReadError) as error:
            raise await self._ended() from error
        try:
            said: Said = decode_said(content)
        except msgspec.DecodeError as error:
            raise await self._ended() from error
        self.is_idle = isinstance(said, Planned) or not said.is_last
        if isinstance(said, Refused):
            raise said.error()
        return said

    async def _send_buffer(self, buffer: Any) -> None:
        content = memoryview(buffer)
        await self._send(len(content).to_bytes(LENGTH_BYTES, "little"))
        for at in range(0, len(content), PIECE_BYTES):
            await self._send(content[at : at + PIECE_BYTES])

    async def _send(self, content: bytes | memoryview) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        await self._process.stdin.drain()

    async def _receive(self) -> bytes:
        assert self._process.stdout is not None
        length = await self._process.stdout.readexactly(LENGTH_BYTES)
        size_bytes = int.from_bytes(length, "little")
        if size_bytes > self._bounds.answer_bytes_max + REPLY_EXTRA_BYTES:
            raise too_much(self._bounds.answer_bytes_max)
        return await self._process.stdout.readexactly(size_bytes)

    async def _ended(self) -> DodonaError:
        """End the process, and return the error that its caller gets."""
        self.is_idle = False
        self.kill()
        status = await self._process.wait()
        if status == -signal.SIGXCPU:
            seconds = self._bounds.cpu_seconds_max
            text = (
                f"The query takes more than {seconds} s of processor time. "
                "Query fewer rows or columns."
            )
            return LimitExceeded(text, cpu_seconds_max=seconds)
        mib = self._bounds.memory_mib_max
        text = (
            f"The query needs more than {mib} MiB, or ended its process. "
            "Query fewer rows or columns."
        )
        return LimitExceeded(text, memory_mib_max=mib)

    def kill(self) -> None:
        """End the process, even within a query."""
        if not self.has_ended:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()


class Queries:
    """All processes for queries of a gateway. Callers bound their number with `Slots`."""

    def __init__(self, bounds: QueryBounds) -> None:
        self._bounds = bounds
        self._idle: list[QueryProcess] = []
        self._all: set[QueryProcess] = set()
        self._lacks_idle = asyncio.Event()
        self._lacks_idle.set()

    @property
    def pids(self) -> list[int]:
        """Return the ids of the processes that run."""
        return [it.pid for it in self._all if not it.has_ended]

    async def run(
        self,
        run: Run,
        session: Session,
        query: Query,
        shape: Shape,
        buffer: TransactionBuffer | None = None,
        rows_max: int | None = None,
    ) -> bytes:
        """Run a prepared query in its two steps, and return its result in that shape. `rows_max` is
        the number of rows that are enough, None for all. Raises InvalidRequest, LimitExceeded,
        Unavailable, and the errors of reads."""
        async with self._take() as process:
            await process.plan(query, rows_max)
            await run(session.fetch_query(query, buffer))
            return await process.compute(query, shape)

    @asynccontextmanager
    async def _take(self) -> AsyncIterator[QueryProcess]:
        process = self._next() or await self._start()
        try:
            yield process
        finally:
            if process.is_idle:
                self._idle.append(process)
            else:
                process.kill()
                self._lacks_idle.set()
            self._all = {it for it in self._all if not it.has_ended}

    async def stay_warm(self) -> None:
        """Start a process that waits for a query, now and after a process was killed, so that few
        queries wait for the start of Python. Run until cancelled."""
        while True:
            await self._lacks_idle.wait()
            self._lacks_idle.clear()
            with suppress(Unavailable):  # the next query then gets this error
                if not self._idle:
                    self._idle.append(await self._start())

    async def _start(self) -> QueryProcess:
        process = await QueryProcess.start(self._bounds)
        self._all.add(process)
        return process

    def _next(self) -> QueryProcess | None:
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
        return None

    async def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.kill()
        await asyncio.gather(*[it.wait() for it in self._all])
