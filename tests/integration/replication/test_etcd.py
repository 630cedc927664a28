"""The coordinator of many machines, by a real etcd: members that fail, watches that go on."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from aetcd import rpc

from dodona_loadtest.harness.relay import FAIR, Condition, Relays
from dodona_replication.core.coordination import Applied, Compare, InDoubt, Refused
from dodona_replication.core.document import Document, Revisioned, encode, owner_id
from dodona_replication.core.errors import DocumentMissing, DocumentUnreadable
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_loop import in_etcd_loop
from dodona_replication.shell.etcd_member import EtcdMember
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.etcd_watch import answers_of
from dodona_wire.errors import InvalidRequest, Unavailable
from integration.replication.raw_etcd import operator
from suite.etcd import HOST, NEEDS_ETCD, EtcdCluster, Member, etcd_cluster, free_port
from suite.waiting import until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

FIRST: Final = Document.initial(["a", "b"], 2)
CLOGGED: Final = Condition(is_clogged=True)
ATTEMPT_MS: Final = 400
PATIENT_MS: Final = 60_000

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture
def member(cluster: EtcdCluster) -> Member:
    return cluster.members[0]


@pytest.fixture
def log() -> str:
    return f"log-{next(_numbers)}"


@asynccontextmanager
async def coordinator(*endpoints: str, **options: Any) -> AsyncIterator[EtcdCoordinator]:
    """One that gives up late, so that a slow machine fails no test."""
    chosen = {"call_ms_max": PATIENT_MS, "attempt_ms_max": ATTEMPT_MS, **options}
    opened = EtcdCoordinator(EtcdOptions(endpoints, **{"cluster": "c1", **chosen}))
    try:
        yield opened
    finally:
        await opened.close()


def owner(number: int) -> str:
    return owner_id(f"node-{number}", number.to_bytes(8, "big"))


async def certain(asked: EtcdCoordinator, log: str, compare: Compare) -> Revisioned:
    """Send a compare, again if need be, until it is known that it is in force."""
    while True:
        answer = await asked.compare(log, compare.revision, compare.document)
        if isinstance(answer, Applied):
            return Revisioned(compare.document, answer.revision)
        current = answer.current if isinstance(answer, Refused) else await asked.read(log)
        settled = compare.settle(current)
        assert isinstance(settled, Applied | InDoubt), "no other process is there"
        if isinstance(settled, Applied):
            return Revisioned(compare.document, settled.revision)


async def change(asked: EtcdCoordinator, log: str, current: Revisioned | None) -> Revisioned:
    if current is None:
        return await certain(asked, log, Compare(None, FIRST))
    document = current.document.take_over(owner(current.document.epoch + 1))
    return await certain(asked, log, Compare(current.revision, document))


@pytest.mark.rest("is about the tests' own etcd")
def test_a_cluster_of_tests_whose_port_was_taken_begins_anew(tmp_path: Path) -> None:
    cluster = EtcdCluster(tmp_path, member_count=3)
    taken = cluster.members[1].port
    with socket.create_server((HOST, taken)):
        try:
            cluster.start()
            assert all(it.is_healthy() for it in cluster.members)
            assert taken not in [it.port for it in cluster.members]
        finally:
            cluster.close()


@pytest.mark.part("a leader of etcd that stands still")
def test_a_leader_that_stands_still_delays_and_loses_nothing(tmp_path: Path) -> None:
    async def stop_the_leader(cluster: EtcdCluster) -> None:
        leader = cluster.leader()
        urls = sorted((it.url for it in cluster.members), key=lambda it: it != leader.url)
        quick = {"progress_ms": 100, "silence_ms_max": 500}
        async with coordinator(*urls, **quick) as asked, coordinator(*urls, **quick) as watcher:
            first = await change(asked, "cell-1", None)
            async with aclosing(watcher.watch("cell-1", 0)) as watch:
                assert await anext(watch) == first
                leader.send(signal.SIGSTOP)
                second = await change(asked, "cell-1", first)
                assert await asked.read("cell-1") == second
                assert await anext(watch) == second
                leader.send(signal.SIGCONT)
                third = await change(asked, "cell-1", second)
                assert await anext(watch) == third

    with etcd_cluster(tmp_path, member_count=3) as cluster:
        asyncio.run(stop_the_leader(cluster))


@pytest.mark.part("a member of etcd that is gone")
def test_the_next_endpoint_is_asked_if_one_is_gone(member: Member, log: str) -> None:
    async def ask() -> None:
        gone = f"{HOST}:{free_port()}"
        async with coordinator(gone, member.url) as asked:
            assert await asked.read(log) is None
            assert isinstance(await asked.compare(log, None, FIRST), Applied)
        async with coordinator(gone, member.url) as asked:
            refused = await asked.compare(log, None, FIRST)
            assert isinstance(refused, Refused), "nothing was sent to the first: no doubt"

    asyncio.run(ask())


def test_without_any_member_the_error_names_all_endpoints(log: str) -> None:
    async def ask() -> None:
        gone = [f"http://{HOST}:{free_port()}" for _ in range(2)]
        async with coordinator(*gone, call_ms_max=300) as asked:
            with pytest.raises(Unavailable) as caught:
                await asked.read(log)
            assert all(it in str(caught.value) for it in gone)
            with pytest.raises(Unavailable):
                await asked.compare(log, None, FIRST)

    asyncio.run(ask())


@pytest.mark.rest("the unit tests of the event loop of etcd's calls show it without etcd")
def test_a_process_asks_etcd_in_many_event_loops(member: Member, log: str) -> None:
    """A process stands by, takes over and serves in one loop each. A call that was under way at the
    end of a loop could stop all later calls."""

    async def ask() -> None:
        async with coordinator(member.url) as asked:
            await asked.read(log)
            async with aclosing(asked.watch(log, 0)) as watch:
                watching = asyncio.ensure_future(anext(watch))
                await asyncio.gather(*(asked.read(log) for _ in range(5)))
                watching.cancel()
                await asyncio.wait({watching})

    for _ in range(200):
        asyncio.run(ask())


def test_a_compare_that_arrives_late_is_settled(member: Member, log: str) -> None:
    """The request is under way while its caller gives up. It may be done, or not."""

    async def delay(relays: Relays) -> None:
        relay = relays.open(member.port)
        async with coordinator(relay.address) as asked, coordinator(member.url) as other:
            first = await change(other, log, None)
            assert await asked.read(log) == first
            compare = Compare(first.revision, first.document.take_over(owner(1)))
            await asyncio.to_thread(relay.disturb, "up", CLOGGED)
            answer = await asked.compare(log, compare.revision, compare.document)
            assert isinstance(answer, InDoubt)
            assert await other.read(log) == first
            assert isinstance(compare.settle(await other.read(log)), InDoubt)
            await asyncio.to_thread(relay.disturb, "up", FAIR)
            current = await certain(asked, log, compare)
            assert await other.read(log) == current

    with Relays() as relays:
        asyncio.run(delay(relays))


def test_a_watch_goes_on_behind_a_compaction(member: Member, log: str) -> None:
    async def compact(relays: Relays) -> None:
        relay = relays.open(member.port)
        async with coordinator(relay.address) as watcher, coordinator(member.url) as asked:
            current = await change(asked, log, None)
            async with aclosing(watcher.watch(log, 0)) as watch:
                assert await anext(watch) == current
                await asyncio.to_thread(relay.disturb, "down", CLOGGED)
                for _ in range(5):
                    current = await change(asked, log, current)
                async with operator(f"{HOST}:{member.port}") as by_hand:
                    await by_hand.compact(current.revision)
                await asyncio.to_thread(relay.reset)
                await asyncio.to_thread(relay.heal)
                assert await anext(watch) == current
                current = await change(asked, log, current)
                assert await anext(watch) == current

    with Relays() as relays:
        asyncio.run(compact(relays))


def test_a_watch_leaves_a_member_that_stands_still(
    member: Member, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def stand_still() -> None:
        quick = {"progress_ms": 50, "silence_ms_max": 200}
        async with coordinator(member.url, **quick) as asked:
            current = await change(asked, log, None)
            async with aclosing(asked.watch(log, 0)) as watch:
                assert await anext(watch) == current
                following = asyncio.ensure_future(anext(watch))
                member.send(signal.SIGSTOP)
                try:
                    await until(lambda: "silent for 200 ms" in caplog.text)
                finally:
                    member.send(signal.SIGCONT)
                assert not following.done()
                current = await change(asked, log, current)
                assert await following == current

    caplog.set_level(logging.INFO)
    asyncio.run(stand_still())


def test_an_idle_watch_asks_for_signs_of_life_and_gets_them(member: Member, log: str) -> None:
    async def stay_idle() -> None:
        options = EtcdOptions([member.url], "c1", progress_ms=10, silence_ms_max=PATIENT_MS)
        asked = EtcdMember(options.members[0], options)
        call = await asked.watch()
        create = rpc.WatchCreateRequest(key=options.key(log))
        await call.write(rpc.WatchRequest(create_request=create))
        async with aclosing(answers_of(asked, call, options)) as answers:
            assert (await anext(answers)).created
            for _ in range(3):
                sign = await anext(answers)
                assert [*sign.events] == []
                assert not sign.created
                assert not sign.canceled
        call.cancel()
        await asked.close()

    asyncio.run(in_etcd_loop(stay_idle()))


def test_what_another_program_wrote_is_an_error_that_names_the_log(
    member: Member, log: str
) -> None:
    async def spoil() -> None:
        async with coordinator(member.url) as asked, operator(f"{HOST}:{member.port}") as by_hand:
            key = f"/dodona/c1/logs/{log}".encode()
            for value in (b"", b"{}", b"x" * 10_000, encode(log, FIRST)[:-1]):
                await by_hand.put(key, value)
                with pytest.raises(DocumentUnreadable, match=log):
                    await asked.read(log)
                with pytest.raises(DocumentUnreadable, match=log):
                    await anext(asked.watch(log, 0))

    asyncio.run(spoil())


def test_a_watch_of_a_document_that_was_removed_ends(member: Member, log: str) -> None:
    async def remove() -> None:
        async with coordinator(member.url) as asked, operator(f"{HOST}:{member.port}") as by_hand:
            current = await change(asked, log, None)
            async with aclosing(asked.watch(log, 0)) as watch:
                assert await anext(watch) == current
                await by_hand.delete(f"/dodona/c1/logs/{log}".encode())
                with pytest.raises(DocumentMissing, match=log):
                    await anext(watch)
            with pytest.raises(DocumentMissing, match=log):
                await anext(asked.watch(log, current.revision))

    asyncio.run(remove())


def test_clusters_have_keys_of_their_own(member: Member, log: str) -> None:
    async def compare() -> None:
        async with coordinator(member.url) as one, coordinator(member.url, cluster="c2") as two:
            first = await change(one, log, None)
            assert await two.read(log) is None
            await change(two, log, None)
            assert await one.read(log) == first
            async with operator(f"{HOST}:{member.port}") as by_hand:
                assert f"/dodona/c2/logs/{log}".encode() in await by_hand.keys()

    asyncio.run(compare())


async def as_user(member: Member) -> None:
    async with coordinator(member.url, user="ann", password="secret") as asked:
        await asked.read("log")


def test_a_user_of_an_etcd_without_users_is_a_wrong_setting(member: Member) -> None:
    """No wait for etcd would help."""
    with pytest.raises(InvalidRequest, match="has no users, and this process has the user ann"):
        asyncio.run(as_user(member))
