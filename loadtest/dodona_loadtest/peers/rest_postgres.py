"""A peer of the gateway: FastAPI over PostgreSQL, as users write it for a table of their own.

`python -m dodona_loadtest.peers.rest_postgres PORT DATABASE_PORT` serves it. One process of uvicorn
has the settings of Dodona's gateway and a pool of asyncpg's connections. It reads and writes JSON,
and needs no tokens: the gateway is measured without them, too.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response

from dodona_loadtest.harness.errors import client_library
from dodona_loadtest.harness.servers import ServerProcess, free_port
from dodona_loadtest.peers.postgres import USER, server, version
from dodona_loadtest.peers.rest_caller import INSERT, LOOKUP
from dodona_server.endpoint import UVICORN_OPTIONS

POOL: Final = 32
CREATE: Final = (
    "CREATE TABLE rows (id bigint PRIMARY KEY, amount double precision, count bigint, note text)"
)
UPSERT: Final = (
    "INSERT INTO rows (id, amount, count, note) "
    "SELECT * FROM unnest($1::bigint[], $2::double precision[], $3::bigint[], $4::text[]) "
    "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, count = excluded.count, "
    "note = excluded.note"
)
FIND: Final = "SELECT id, amount, count, note FROM rows WHERE id = ANY($1::bigint[])"


@contextmanager
def serve(folder: Path) -> Iterator[tuple[int, str]]:
    """Start a server. Yields its port and its name."""
    with server(folder) as database:
        port = free_port()
        command = [sys.executable, "-m", __spec__.name, str(port), str(database.port)]

        def is_ready() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            except httpx.ConnectError:
                return False

        with ServerProcess(command, folder / "rest.log", is_ready):
            yield port, f"FastAPI, {version()}"


def application(database_port: int) -> FastAPI:
    """Return the whole application."""
    asyncpg = client_library("asyncpg")
    pools: list[Any] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        place = {"host": "127.0.0.1", "port": database_port, "user": USER, "database": "postgres"}
        async with asyncpg.create_pool(**place, min_size=POOL, max_size=POOL) as pool:
            await pool.execute(CREATE)
            pools.append(pool)
            yield

    pages = FastAPI(lifespan=lifespan)

    @pages.get("/healthz")
    async def is_healthy() -> dict[str, str]:
        return {"status": "ok"}

    async def insert(request: Request) -> Response:
        rows = msgspec.json.decode(await request.body())["rows"]
        columns = [[it[name] for it in rows] for name in ("id", "amount", "count", "note")]
        await pools[0].execute(UPSERT, *columns)
        return _answer({"row_count": len(rows)})

    async def look_up(request: Request) -> Response:
        keys = [it["id"] for it in msgspec.json.decode(await request.body())["keys"]]
        found = await pools[0].fetch(FIND, keys)
        return _answer({"rows": [dict(it) for it in found]})

    pages.add_route(INSERT, insert, methods=["POST"])
    pages.add_route(LOOKUP, look_up, methods=["POST"])
    return pages


def _answer(value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


if __name__ == "__main__":
    own_port, its_port = map(int, sys.argv[1:])
    options: dict[str, Any] = {**UVICORN_OPTIONS, "host": "127.0.0.1", "port": own_port}
    uvicorn.run(application(its_port), **options)
