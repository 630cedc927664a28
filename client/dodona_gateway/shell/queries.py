"""Queries of a gateway's callers, each computed in a process of its own for as long as it takes.

Owns: these processes: how many there are, that one is at one query at a time, and their end: with
the query that was given up, at its deadline, with the gateway. A query may do what it likes to its
process; what its caller learns then is that it took too much. Those that are well wait for the next
query, which so begins within a millisecond. Belongs to one event loop.
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
"""What is read, and what DuckDB computes with, result included: each has the same bound."""
REPLY_EXTRA_BYTES: Final = 1 << 20
ROWS_PER_BATCH: Final = 2_048
PIECE_BYTES: Final = 1 << 20
ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TZDIR")
"""What a process is given of the gateway's: no key is among it."""
ALLOCATORS: Final = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""So that little more is mapped than used."""

Run = Callable[[Protocol[Any]], Awaitable[Any]]


class QueryBounds(NamedTuple):
    """Of one query."""

    answer_bytes_max: int
    cpu_seconds_max: int
    memory_mib_max: int


class QueryProcess:
    """One process, between queries or at one."""

    def __init__(self, process: Process, bounds: QueryBounds) -> None:
        self._process = process
        self._bounds = bounds
        self.is_idle = True
        """Whether it is well, and owes no reply."""

    @classmethod
    async def start(cls, bounds: QueryBounds) -> "QueryProcess":
        """Raises Unavailable if the system has no room for it."""
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
                start_new_session=True,  # Ctrl-C is for the gateway
            )
        except OSError as error:
            raise Unavailable(f"no process can be started for a query: {error}") from error
        return cls(process, bounds)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Of itself, too."""
        return self._process.returncode is not None

    async def plan(self, query: Query, rows_max: int | None) -> None:
        """Find out what the query needs. Raises InvalidRequest, LimitExceeded."""
        limits = msgspec.structs.replace(
            query.limits,
            memory_mib_max=self._bounds.memory_mib_max,
            result_bytes_max=self._bounds.answer_bytes_max,
            rows_per_batch=ROWS_PER_BATCH,
        )
        tables = [QueryTable(it.path, it.schema.columns) for it in query.sources]
        cpu_seconds_max = self._bounds.cpu_seconds_max
        said = await self._ask(Plan(query.text, tables, limits, cpu_seconds_max, rows_max))
        if not isinstance(said, Planned) or len(said.wanted) != len(query.sources):
            raise await self._ended()
        for source, wanted in zip(query.sources, said.wanted, strict=True):
            source.wanted = wanted

    async def compute(self, query: Query, shape: Shape) -> bytes:
        """The result of a query whose tables were read, in that shape. They are let go of."""
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
        """What its end means to whoever asked."""
        self.is_idle = False
        self.kill()
        status = await self._process.wait()
        if status == -signal.SIGXCPU:
            seconds = self._bounds.cpu_seconds_max
            text = f"the query takes more than {seconds} s of processor time: narrow it"
            return LimitExceeded(text, cpu_seconds_max=seconds)
        mib = self._bounds.memory_mib_max
        text = f"the query needs more than {mib} MiB, or ended its process: narrow it"
        return LimitExceeded(text, memory_mib_max=mib)

    def kill(self) -> None:
        """Whatever it is doing."""
        if not self.has_ended:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()


class Queries:
    """All of them. How many there are at a time its callers bound (`Slots`)."""

    def __init__(self, bounds: QueryBounds) -> None:
        self._bounds = bounds
        self._idle: list[QueryProcess] = []
        self._all: set[QueryProcess] = set()
        self._lacks_idle = asyncio.Event()
        self._lacks_idle.set()

    @property
    def pids(self) -> list[int]:
        """Of the processes that live."""
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
        """The movements of a prepared query: its result in that shape. Raises InvalidRequest,
        LimitExceeded, Unavailable, and what reads raise."""
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
        """Have a process that waits for a query, now and whenever one was killed: none should have
        to wait until Python has begun. Until cancelled."""
        while True:
            await self._lacks_idle.wait()
            self._lacks_idle.clear()
            with suppress(Unavailable):  # then the next query is told so
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
        """End them all."""
        for process in self._all:
            process.kill()
        await asyncio.gather(*[it.wait() for it in self._all])
