"""Check that nodes are at rest: no work may be left under way.

Owns: the question, over REST, and the wait for the right answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import httpx

from dodona_loadtest.live.phases import NotLive

RESOLVE_S_MAX: Final = 10.0
"""How long after the last session's end a cell may still hold a transaction or a lock."""
ANSWER_S_MAX: Final = 5.0
POLL_S: Final = 0.1


async def wait_for_rest(node_urls: Callable[[], Awaitable[Sequence[str]]]) -> None:
    """Wait until no cell has open transactions. `node_urls` returns where the cells are now. Raises
    NotLive with work that takes too long."""
    deadline = time.monotonic() + RESOLVE_S_MAX
    async with httpx.AsyncClient(timeout=ANSWER_S_MAX, trust_env=False) as http:
        while True:
            urls = await node_urls()
            left = [text for url in urls if (text := await unfinished(http, url))]
            if not left:
                return
            if time.monotonic() > deadline:
                raise NotLive(f"after {RESOLVE_S_MAX:g} s of rest: {'; '.join(left)}")
            await asyncio.sleep(POLL_S)


async def unfinished(http: httpx.AsyncClient, url: str) -> str:
    """Return which work the node has left, if any."""
    try:
        answer = (await http.get(f"{url}/v1/statistics")).raise_for_status()
    except httpx.HTTPError as error:  # a node that was killed last may be starting
        return f"{url} does not answer: {error!r}"
    cell = answer.json()["cell"]
    if not cell["transactions_alive"] and not cell["reads_waiting"]:
        return ""
    return (
        f"{url}: {cell['transactions_alive']} transactions are alive, "
        f"{cell['transactions_prepared']} of them prepared, {cell['reads_waiting']} reads wait"
    )
