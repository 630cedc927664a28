"""TCP relays in user space: links that are slow, narrow, mute in one or both directions, or cut.

Owns: the relays' event loop, in a thread of its own, and the connections through them. A clogged
link holds bytes back until it heals. Then they arrive late, as if packets were sent again. A reset
loses them. A relay accepts a connection even if nothing passes, as the kernel does for a server
that stands still. Loopback only.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 16
CHUNKS_MAX: Final = 64
"""Chunks read ahead in one direction. After that the sender has to wait."""
ANSWER_S_MAX: Final = 10.0
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)

Direction = Literal["up", "down"]
"""up: to the server; down: back to the client."""
DIRECTIONS: Final[tuple[Direction, ...]] = ("up", "down")


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one direction of a link."""

    delay_ms: float = 0.0
    bytes_per_s: float = 0.0
    """0: without a limit."""
    is_clogged: bool = False


FAIR: Final = Condition()


class Relays:
    """The thread that runs the relays. Use as a context manager."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()
        self._relays: list[Relay] = []
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(ANSWER_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S_MAX)
        self._loop.close()

    def open(self, port: int, rewrites: Mapping[bytes, bytes] | None = None) -> "Relay":
        """Open a relay to that port, on a port of its own."""
        relay = Relay(self._loop, port, rewrites or {})
        asyncio.run_coroutine_threadsafe(relay.start(), self._loop).result(ANSWER_S_MAX)
        self._relays.append(relay)
        return relay

    async def _close(self) -> None:
        for relay in self._relays:
            await relay.close()


class Relay:
    """One link. `rewrites` are words of equal length that are replaced on the way down. So a server
    that names other servers' addresses names relays instead. A word is found only within one chunk,
    which is how a small answer arrives."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, target_port: int, rewrites: Mapping[bytes, bytes]
    ) -> None:
        assert all(len(old) == len(new) for old, new in rewrites.items())
        self._loop = loop
        self._target_port = target_port
        self._rewrites = dict(rewrites)
        self._conditions: dict[Direction, Condition] = dict.fromkeys(DIRECTIONS, FAIR)
        self._passes: dict[Direction, asyncio.Event] = {}
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None
        self.connection_count = 0
        self.reset_count = 0
        self.late_bytes = 0
        """Bytes that a clog held back, and that arrived later."""

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    # Called from any thread

    def disturb(self, direction: Direction, condition: Condition) -> None:
        """Give the direction this condition from now on."""
        self._in_loop(lambda: self._set(direction, condition))

    def heal(self) -> None:
        """Make both directions fair again."""
        for direction in DIRECTIONS:
            self.disturb(direction, FAIR)

    def reset(self) -> None:
        """End all connections together, on both sides, without a goodbye (RST)."""
        self._in_loop(self._reset)

    def _in_loop(self, action: Callable[[], Any]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(ANSWER_S_MAX)

    # In the loop

    async def start(self) -> None:
        for direction in DIRECTIONS:
            self._passes[direction] = asyncio.Event()
            self._passes[direction].set()
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=CHUNK_BYTES)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _set(self, direction: Direction, condition: Condition) -> None:
        self._conditions[direction] = condition
        if condition.is_clogged:
            self._passes[direction].clear()
        else:
            self._passes[direction].set()

    def _reset(self) -> None:
        for task, writers in self._connections.items():
            self.reset_count += 1
            for writer in writers:
                _abort(writer)
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connection_count += 1
        writers = self._connections[task] = [writer]
        try:
            up_reader, up_writer = await asyncio.open_connection(HOST, self._target_port)
            writers.append(up_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump("up", reader, up_writer))
                pumps.create_task(self._pump("down", up_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # one side is gone, and so is the other
        finally:
            for each in writers:
                _abort(each)
            del self._connections[task]

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass bytes on in their order, each chunk when it is due. Pass on an end, too."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        async with asyncio.TaskGroup() as halves:
            halves.create_task(self._read(direction, reader, chunks))
            halves.create_task(self._write(direction, writer, chunks))

    async def _read(
        self,
        direction: Direction,
        reader: asyncio.StreamReader,
        chunks: asyncio.Queue[tuple[float, bytes]],
    ) -> None:
        chunk = b"-"
        while chunk:
            chunk = await reader.read(CHUNK_BYTES)
            due = self._loop.time() + self._conditions[direction].delay_ms / 1000
            await chunks.put((due, chunk))

    async def _write(
        self,
        direction: Direction,
        writer: asyncio.StreamWriter,
        chunks: asyncio.Queue[tuple[float, bytes]],
    ) -> None:
        while True:
            due, chunk = await chunks.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if not self._passes[direction].is_set():
                await self._passes[direction].wait()
                self.late_bytes += len(chunk)
            if not chunk:
                with suppress(OSError):
                    writer.write_eof()
                return
            if direction == "down":
                for old, new in self._rewrites.items():
                    chunk = chunk.replace(old, new)
            writer.write(chunk)
            await writer.drain()
            bytes_per_s = self._conditions[direction].bytes_per_s
            if bytes_per_s:
                await asyncio.sleep(len(chunk) / bytes_per_s)


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset."""
    raw: socket.socket | None = writer.get_extra_info("socket")
    if raw is not None and not writer.transport.is_closing():
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()
