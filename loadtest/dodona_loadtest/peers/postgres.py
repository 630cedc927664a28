"""PostgreSQL, private instances: fsync and synchronous_commit on, clients over loopback TCP.

`initdb` and the server refuse to run as root. So as root they run as an unprivileged user. The
settings are generous to PostgreSQL: larger shared buffers, and no checkpoint within a run.
"""

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing, client_library
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation
from dodona_loadtest.harness.payload import KEYS_COUNT, RowSource
from dodona_loadtest.harness.row import Running
from dodona_loadtest.harness.servers import ServerProcess, command_output, free_port

USER: Final = "bench"
CONNECTIONS_MAX: Final = 64
"""More callers than this share the connections: a PostgreSQL connection is a process."""
UNPRIVILEGED_USERS: Final = ("postgres", "nobody")
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "100",
    "max_prepared_transactions": "128",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
UPSERT: Final = (
    "INSERT INTO bench (id, payload) VALUES ($1, $2) "
    "ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
)
CREATE_TABLE: Final = "CREATE TABLE IF NOT EXISTS bench (id bigint PRIMARY KEY, payload bytea)"


@contextmanager
def serve_sequence(folder: Path) -> Iterator[Running]:
    """Start one server, loaded with `nextval`."""
    with server(folder) as served:
        yield Running(SequenceLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_upserts(folder: Path) -> Iterator[Running]:
    """Start one server, loaded with single-row upserts."""
    with server(folder) as served:
        yield Running(UpsertLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_transactions(folder: Path) -> Iterator[Running]:
    """Start one server, loaded with transactions of one upsert."""
    with server(folder) as served:
        yield Running(TransactionLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_two_phase(folder: Path) -> Iterator[Running]:
    """Start two servers, loaded with two-phase commits over both."""
    with ExitStack() as stack:
        servers = []
        for number in range(2):
            own_folder = folder / str(number)
            own_folder.mkdir(mode=0o755)
            servers.append(stack.enter_context(server(own_folder)))
        ports = tuple(served.port for served in servers)
        yield Running(TwoPhaseLoad(ports), version(), tuple(served.pid for served in servers))


class Installation:
    """A private data folder, which one server at a time may serve."""

    def __init__(self, folder: Path) -> None:
        """Make it in an empty folder."""
        client_library("asyncpg")
        self._folder = folder
        self._binaries = _binaries()
        self._user = _unprivileged_user()
        self._data = folder / "data"
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(self._data, self._user, -1)
        _initialise(self._binaries, self._data, self._user)
        self.port = free_port()

    def server(self, is_awaited: bool = True) -> ServerProcess:
        """Return a server to enter, one at a time. With `is_awaited`, entry waits until it
        serves."""
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        place = ["-D", str(self._data), "-p", str(self.port)]
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]

        def is_ready() -> bool:
            return subprocess.run(probe, timeout=10, check=False).returncode == 0

        return ServerProcess(
            [str(self._binaries / "postgres"), *place, *settings],
            self._folder / "log",
            is_ready if is_awaited else lambda: True,
            user=self._user,
            stop_signal=signal.SIGINT,  # the "fast" shutdown: does not wait for clients
        )


@dataclass(frozen=True, slots=True)
class Served:
    """The address of a started server."""

    port: int
    pid: int


@contextmanager
def server(folder: Path) -> Iterator[Served]:
    """Start a server over an empty database."""
    installation = Installation(folder)
    with installation.server() as process:
        yield Served(installation.port, process.pid)


def _binaries() -> Path:
    """Return the folder of the newest version. Debian does not put it on PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major_version, reverse=True)
    initdb = shutil.which("initdb")
    if initdb is not None:
        folders.append(Path(initdb).resolve().parent)
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            return folder
    raise ContenderMissing("no PostgreSQL server on PATH or in /usr/lib/postgresql")


def _major_version(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdecimal() else 0


def version() -> str:
    """Return the version for the report."""
    postgres = command_output([str(_binaries() / "postgres"), "--version"])
    return f"{postgres}, asyncpg {client_library('asyncpg').__version__}"


def _unprivileged_user() -> int | None:
    """Return the user to run as, or None if this process isn't root."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise ContenderMissing("PostgreSQL refuses to run as root, and there is no user nobody")


def _initialise(binaries: Path, data: Path, user: int | None) -> None:
    command = [str(binaries / "initdb"), "-D", str(data), "-U", USER, "--auth=trust"]
    command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(
        command, user=user, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise ContenderFailed(f"initdb failed: {done.stderr.strip()}")


async def connect_all(port: int, count: int) -> list[Any]:
    """Return so many connections."""
    asyncpg = client_library("asyncpg")
    return [
        await asyncpg.connect(host="127.0.0.1", port=port, user=USER, database="postgres")
        for _ in range(count)
    ]


def run_query(port: int, query: str) -> None:
    """Run one statement over a connection of its own."""

    async def run() -> None:
        (connection,) = await connect_all(port, 1)
        try:
            await connection.execute(query)
        finally:
            await connection.close()

    asyncio.run(run())


class SequenceLoad(AsyncLoad):
    """`nextval`, PostgreSQL's nearest thing to a timestamp: unique and rising.

    It writes its log only every 32 values. So, as with the oracle, most values need no disk. If
    there are more callers than connections, callers take turns on them, first come first served.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Any] = []

    async def open(self, callers_max: int) -> None:
        self._connections = await connect_all(self._port, min(callers_max, CONNECTIONS_MAX))
        await self._connections[0].execute("CREATE SEQUENCE bench")
        statements = [await c.prepare("SELECT nextval('bench')") for c in self._connections]
        self._slots = [(statement.fetchval, asyncio.Lock()) for statement in statements]

    def operation(self, caller: int) -> AsyncOperation:
        fetch, lock = self._slots[caller % len(self._slots)]

        async def next_value() -> object:
            async with lock:
                return await fetch()

        return next_value

    async def check(self) -> None:
        first, second = [await self.operation(0)() for _ in range(2)]
        if not isinstance(first, int) or not isinstance(second, int) or first >= second:
            raise ContenderFailed(f"the sequence gave {first} and then {second}")

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


class ConnectionsLoad(AsyncLoad):
    """A load with a connection for each caller."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self, callers_max: int) -> None:
        self._connections = await connect_all(self._port, callers_max)

    async def prepare(self, statement: str) -> list[Any]:
        """Prepare a statement on each connection."""
        return [await it.prepare(statement) for it in self._connections]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


class UpsertLoad(ConnectionsLoad):
    """Prepared single-row upserts that commit by themselves."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._rows = RowSource()
        self._last_key = 0

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        await self._connections[0].execute(CREATE_TABLE)
        self._statements = await self.prepare(UPSERT)

    def operation(self, caller: int) -> AsyncOperation:
        upsert, rows = self._statements[caller].fetchval, self._rows

        async def write() -> None:
            key = rows.next_key()
            await upsert(key, rows.next_value())
            self._last_key = key

        return write

    async def check(self) -> None:
        query = "SELECT count(*) FROM bench WHERE id = $1"
        if await self._connections[0].fetchval(query, self._last_key) != 1:
            raise ContenderFailed(f"row {self._last_key} was acknowledged and isn't there")


class TransactionLoad(UpsertLoad):
    """The same upserts, each between a BEGIN and a COMMIT of its own."""

    def operation(self, caller: int) -> AsyncOperation:
        upsert, connection = super().operation(caller), self._connections[caller]

        async def write() -> None:
            async with connection.transaction():
                await upsert()

        return write


class TwoPhaseLoad(AsyncLoad):
    """PREPARE TRANSACTION on both servers together, then COMMIT PREPARED on both together.

    Each server takes two round trips, the fewest possible: the plan is prepared, and one simple
    query opens, writes and prepares. No log has the decision, which a real coordinator needs. A
    reader may see half of a commit. Both are in PostgreSQL's favour.
    """

    def __init__(self, ports: tuple[int, ...]) -> None:
        self._ports = ports
        self._rows = RowSource()
        self._numbers = itertools.count()
        self._last_key = 0

    async def open(self, callers_max: int) -> None:
        self._pools = [await connect_all(port, callers_max) for port in self._ports]
        for pool in self._pools:
            await pool[0].execute(CREATE_TABLE)
            for connection in pool:
                await connection.execute(f"PREPARE bench_put (bigint, bytea) AS {UPSERT}")

    def operation(self, caller: int) -> AsyncOperation:
        first, second = (pool[caller].execute for pool in self._pools)
        rows, numbers = self._rows, self._numbers

        async def write() -> None:
            name, key = f"'bench-{next(numbers)}'", rows.next_key(KEYS_COUNT // 2)
            prepare = (
                f"BEGIN; EXECUTE bench_put({key}, '\\x{rows.next_value().hex()}'); "
                f"PREPARE TRANSACTION {name}"
            )
            await asyncio.gather(first(prepare), second(prepare))
            commit = f"COMMIT PREPARED {name}"
            await asyncio.gather(first(commit), second(commit))
            self._last_key = key

        return write

    async def check(self) -> None:
        query = "SELECT count(*) FROM bench WHERE id = $1"
        for pool in self._pools:
            if await pool[0].fetchval(query, self._last_key) != 1:
                raise ContenderFailed(f"row {self._last_key} was acknowledged and isn't there")

    async def close(self) -> None:
        for pool in self._pools:
            for connection in pool:
                await connection.close()
