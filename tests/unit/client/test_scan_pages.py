"""Scans convert the pages that they have while servers make more, and the result is the same."""

import threading
from typing import Any

import pytest

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.reading.scan_pages import ScanPages
from dodona._io.drivers import AsyncioDriver, BlockingDriver
from dodona.types import MIN_TIMESTAMP, Revision, TabletId
from dodona_wire.messages.catalog import GetCluster
from dodona_wire.messages.data import Lookup, LookupReply, ScanPage
from dodona_wire.messages.families import Reply
from dodona_wire.types import Key
from suite.waiting import WAIT_S_MAX
from unit.client.cluster import FakeCluster
from unit.client.protocols import PATH, Clock, Play, key, new_session, table
from unit.client.test_reading import ROWS, Tablets, row


def page(*numbers: int) -> ScanPage:
    return ScanPage(tuple([key(it) for it in numbers]), tuple([(it,) for it in numbers]), None)


def test_what_is_made_comes_in_key_order_and_is_made_once() -> None:
    made: list[ScanPage] = []

    def make(it: ScanPage) -> int:
        made.append(it)
        return len(it.keys)

    pages = ScanPages(ScanPage, make)
    later, first, last = page(5, 6), page(1), page(7, 8, 9)
    pages.add(key(5), later)
    pages.make_some()
    assert made == [later]
    pages.add(key(1), first)
    pages.make_some()
    pages.add(key(7), last)
    assert pages.all_made() == [1, 2, 3]
    assert made == [later, first, last]


def test_an_error_is_raised_where_it_happens() -> None:
    """It may be that of an alarm, which interrupts the conversion."""

    def make(it: ScanPage) -> int:
        return 1 // len(it.keys)

    pages = ScanPages(ScanPage, make)
    pages.add(Key(b""), page())
    with pytest.raises(ZeroDivisionError):
        pages.make_some()
    with pytest.raises(ZeroDivisionError):
        pages.all_made()


def played(is_meanwhile: bool) -> tuple[Any, int]:
    """Return all rows, and for how many steps there was something to compute."""
    clock, tablets, count = Clock(), Tablets(), 0
    play = Play(clock, new_session(clock, table()).select(PATH))
    while isinstance(step := play.step, Calls):
        replies = [tablets(target, body) for target, body in step.requests]
        if step.meanwhile is not None and is_meanwhile:
            step.meanwhile()
            count += 1
        play.answer(*replies)
    return play.result, count


def test_a_scan_gives_the_same_rows_whether_there_is_time_or_not() -> None:
    (early, count), (late, none) = played(True), played(False)
    assert list(early) == list(late) == [row(it) for it in sorted(ROWS)]
    assert count > 1 > none


def asking(cluster: FakeCluster, cell_count: int) -> Protocol[list[Reply]]:
    """Connect to the cells. Then ask them, and wait meanwhile until they have the requests."""
    requests = tuple(
        [
            (cell, Lookup(TabletId(cell), Revision(1), MIN_TIMESTAMP, (key(1),), 1))
            for cell in range(cell_count)
        ]
    )
    yield Calls(requests)
    missing, arrived = [*range(cell_count)], threading.Event()

    def answers(body: Any) -> None:
        missing.remove(body.tablet)
        if not missing:
            arrived.set()

    cluster.cell_answers = answers
    waited: list[bool] = []
    replies = yield Calls(requests, meanwhile=lambda: waited.append(arrived.wait(WAIT_S_MAX)))
    assert waited == [True]
    return replies


def routing_of(cluster: FakeCluster) -> Routing:
    routing = Routing()
    routing.learn_cells(cluster.ask_master(GetCluster()))
    return routing


@pytest.mark.parametrize("cell_count", [1, 2])
def test_a_blocking_driver_computes_after_its_requests_have_left(
    cluster: FakeCluster, cell_count: int
) -> None:
    driver = BlockingDriver(cluster.url, routing_of(cluster))
    try:
        replies = driver.run(asking(cluster, cell_count))
    finally:
        driver.close()
    assert replies == [LookupReply((None,))] * cell_count


@pytest.mark.anyio
@pytest.mark.parametrize("cell_count", [1, 2])
async def test_an_asyncio_driver_computes_after_its_requests_have_left(
    cluster: FakeCluster, cell_count: int
) -> None:
    driver = AsyncioDriver(cluster.url, routing_of(cluster))
    try:
        replies = await driver.run(asking(cluster, cell_count))
    finally:
        await driver.close()
    assert replies == [LookupReply((None,))] * cell_count
