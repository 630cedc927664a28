"""An owner of a log, with replicas that are processes: some are killed, and another owner comes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dodona_local.ports import reserve_ports
from dodona_replication.core.document import owner_id
from dodona_replication.core.errors import DocumentTooOld
from dodona_replication.core.owner_effects import Ended, Identity, OwnerLimits
from dodona_replication.shell.first_look import Copies
from dodona_replication.shell.folder import FolderCoordinator
from dodona_replication.shell.owner_host import Hearing, OwnerHost, TakeOverStuck
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_server.process import read_clock
from dodona_wire.messages.replicas import Entry
from integration.replication.replica_process import Replica
from suite.waiting import WAIT_S_MAX

pytestmark = [pytest.mark.integration, pytest.mark.part("an owner loses replicas under load")]

LOG = "cell-1"
STUCK_S = 0.5


class Host:
    """An owner, and what it was called with."""

    def __init__(self, coordinator: FolderCoordinator, urls: Sequence[str], number: int) -> None:
        async def open_coordinator() -> FolderCoordinator:
            return coordinator

        self.found: list[Entry] = []
        self.acknowledged_index = 0
        self.ended: list[Ended] = []
        self.failures: list[BaseException] = []
        self.changed = asyncio.Event()
        hearing = Hearing(
            self._replay, self._acknowledge, self.changed.set, self._end, self.failures.append
        )
        identity = Identity("home", LOG, owner_id(f"node-{number}", bytes(8)))
        links = ReplicaLinks("home", LOG, urls)
        self.host = OwnerHost(identity, open_coordinator, links, OwnerLimits(), hearing)

    def _replay(self, entries: Sequence[Entry]) -> None:
        self.found += entries

    def _acknowledge(self, index: int) -> None:
        self.acknowledged_index = index

    def _end(self, end: Ended) -> None:
        self.ended.append(end)

    async def open(self) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            await self.host.join()
            await self.host.take_over(Copies())
            await self.host.open(b"opened")

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    async def append(self, records: bytes) -> None:
        index = self.host.append([records])
        await self.until(lambda: self.acknowledged_index >= index)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Replica]]:
    reserved = reserve_ports(0, 4)
    with ExitStack() as stack:
        made = []
        for number, port in enumerate(reserved.ports):
            made.append(Replica(tmp_path / f"replica-{number}", port))
            stack.callback(made[-1].close)
        for it in made:
            it.launch()
        for it in made:
            it.wait_until_ready()
        yield made
    reserved.release()


@asynccontextmanager
async def coordinator(path: Path) -> AsyncIterator[FolderCoordinator]:
    made = FolderCoordinator.open(path)
    yield made
    await made.close()


def test_a_killed_replica_is_replaced_and_nothing_acknowledged_is_lost(
    tmp_path: Path, replicas: list[Replica]
) -> None:
    urls = [it.url for it in replicas]

    async def own() -> None:
        async with coordinator(tmp_path) as folder:
            first = Host(folder, urls, 1)
            await first.open()
            assert first.found == []
            owner = first.host.owner
            assert owner is not None
            members = owner.document.members
            spare = next(it for it in replicas if it.id not in members)
            victim = next(it for it in replicas if it.id == members[1])
            for number in range(50):
                await first.append(b"%d" % number)
            victim.process.send_signal(signal.SIGKILL)
            for number in range(50, 100):
                await first.append(b"%d" % number)
            assert victim.id not in owner.document.members
            await first.until(lambda: spare.id in owner.document.members)
            assert owner.may_read(read_clock())
            report = first.host.report()
            assert report.changes_by_kind == {"joined": 1, "dropped": 1}
            states = {it.address: it for it in report.replicas}
            assert [states[it.url].replica for it in replicas] == [it.id for it in replicas]
            assert (states[victim.url].role, states[spare.url].role) == ("spare", "member")
            assert states[victim.url].silent_us > 0
            assert report.text == "3 of 3 copies"

            second = Host(folder, urls, 2)
            await second.open()
            assert [it.records for it in second.found] == [
                b"opened",
                *[b"%d" % number for number in range(100)],
            ]
            await first.until(lambda: bool(first.ended))
            assert "another process" in first.ended[0].reason or "epoch 2" in first.ended[0].reason
            await second.append(b"more")
            await second.host.release()
            await second.host.leave()
            await first.host.leave()
        async with coordinator(tmp_path / "restored") as folder:
            third = Host(folder, urls, 3)
            with pytest.raises(DocumentTooOld, match=r"has epoch 0, but the replica at .* has epo"):
                await third.open()
            assert await folder.read(LOG) is None
            await third.host.leave()

    asyncio.run(own())


def members_of(first: Host, replicas: list[Replica]) -> list[Replica]:
    """The processes of the replicas in the owner's set."""
    assert first.host.owner is not None
    return [it for it in replicas if it.id in first.host.owner.document.members]


@asynccontextmanager
async def owned(path: Path, replicas: list[Replica]) -> AsyncIterator[list[Replica]]:
    """A log that an owner has had. Yield two of the members of its set."""
    async with coordinator(path) as folder:
        first = Host(folder, [it.url for it in replicas], 1)
        await first.open()
        await first.append(b"kept")
        members = members_of(first, replicas)[:2]
        await first.host.leave()
    yield members


def test_a_take_over_that_does_not_get_on_is_given_up_and_another_one_ends(
    tmp_path: Path, replicas: list[Replica]
) -> None:
    urls = [it.url for it in replicas]

    async def give_up() -> None:
        async with owned(tmp_path, replicas) as members:
            for it in members:
                it.process.send_signal(signal.SIGSTOP)
            async with coordinator(tmp_path) as folder:
                second = Host(folder, urls, 2)
                await second.host.join()
                with pytest.raises(TakeOverStuck, match=LOG):
                    await second.host.take_over(Copies(), None, STUCK_S)
                await second.host.leave()
            for it in members:
                it.process.send_signal(signal.SIGCONT)
            async with coordinator(tmp_path) as folder:
                third = Host(folder, urls, 3)
                await third.open()
                assert b"kept" in [it.records for it in third.found]
                await third.host.leave()

    asyncio.run(give_up())


def test_replicas_that_stood_still_during_a_long_recovery_do_not_end_it(
    tmp_path: Path, replicas: list[Replica]
) -> None:
    """The limit counts from the end of the recovery on."""
    urls = [it.url for it in replicas]

    async def recover() -> None:
        async with owned(tmp_path, replicas) as members, coordinator(tmp_path) as folder:
            second = Host(folder, urls, 2)
            await second.host.join()
            await second.host.take_over(Copies(), None, WAIT_S_MAX)
            for it in members:
                it.process.send_signal(signal.SIGSTOP)
            opening = asyncio.create_task(second.host.open(b"opened"))
            await asyncio.sleep(2 * STUCK_S)  # the recovery
            assert not opening.done()
            with pytest.raises(TakeOverStuck):
                await second.host.until_open(STUCK_S)
            for it in members:
                it.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(WAIT_S_MAX):
                await opening
            await second.host.until_open(STUCK_S)
            await second.append(b"more")
            await second.host.leave()

    asyncio.run(recover())
