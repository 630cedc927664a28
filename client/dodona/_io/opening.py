"""Open a client: connect to a cluster, or open an embedded database. For both APIs.

Owns: that an opening which fails, or is interrupted, leaves nothing open. The two APIs differ here
more than by `await`, so both are written by hand.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from dodona._core.protocol.context import Acknowledgement
from dodona._core.session import Session
from dodona._io.bounds import AsyncDriver, Driver, check_call_timeout
from dodona._io.sessions import FolderPath, check_folder, load_embedded, new_session
from dodona_wire.types import Isolation

Client = TypeVar("Client")
AsyncClient = TypeVar("AsyncClient")


def connected(
    make: Callable[[Driver, Session, str, int | None], Client],
    url: str,
    timeout_ms: int,
    acknowledgement: Acknowledgement,
    call_timeout_ms: int | None,
    isolation: Isolation | None,
    refresh: bool | None,
) -> Client:
    """Return a client of the cluster at `url`, after the first answer of the master."""
    from dodona._io.making_drivers import blocking_driver

    session = new_session(acknowledgement, isolation, refresh)
    check_call_timeout(call_timeout_ms)
    driver = blocking_driver(url, session.routing)
    try:
        client = make(driver, session, url, call_timeout_ms)
        driver.run(session.catalog.get_cluster(timeout_ms), timeout_ms)
    except BaseException:  # no pinger has a thread yet
        driver.close()
        raise
    return client


async def async_connected(
    make: Callable[[AsyncDriver, Session, str, int | None], AsyncClient],
    url: str,
    timeout_ms: int,
    acknowledgement: Acknowledgement,
    call_timeout_ms: int | None,
    isolation: Isolation | None,
    refresh: bool | None,
) -> AsyncClient:
    """Return a client of the cluster at `url`, as `connected` does, for asyncio."""
    from dodona._io.making_drivers import asyncio_driver

    session = new_session(acknowledgement, isolation, refresh)
    check_call_timeout(call_timeout_ms)
    driver = asyncio_driver(url, session.routing)
    try:
        client = make(driver, session, url, call_timeout_ms)
        await driver.run(session.catalog.get_cluster(timeout_ms), timeout_ms)
    except BaseException:  # no pinger has a task yet
        await driver.close()
        raise
    return client


def opened(
    make: Callable[[Driver, Session, str, int | None], Client],
    path: FolderPath,
    acknowledgement: Acknowledgement,
    call_timeout_ms: int | None,
    isolation: Isolation | None,
    refresh: bool | None,
) -> Client:
    """Return a client of the embedded database in this folder."""
    folder, session = check_folder(path), new_session(acknowledgement, isolation, refresh)
    check_call_timeout(call_timeout_ms)
    made: list[Any] = []
    try:
        driver = load_embedded().open_blocking(folder, session.routing, made)
        return make(driver, session, folder, call_timeout_ms)
    except BaseException:  # also for an interrupt: a folder without a client must not stay open
        for driver in made:
            driver.begin_closing()
        raise


async def async_opened(
    make: Callable[[AsyncDriver, Session, str, int | None], AsyncClient],
    path: FolderPath,
    acknowledgement: Acknowledgement,
    call_timeout_ms: int | None,
    isolation: Isolation | None,
    refresh: bool | None,
) -> AsyncClient:
    """Return a client of the embedded database in this folder, for asyncio."""
    folder, session = check_folder(path), new_session(acknowledgement, isolation, refresh)
    check_call_timeout(call_timeout_ms)
    driver = await load_embedded().open_async(folder, session.routing)
    return make(driver, session, folder, call_timeout_ms)
