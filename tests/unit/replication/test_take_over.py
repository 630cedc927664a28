"""From which members a take-over reads a log, if one of them gives no entries."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona_replication.core.document import Revisioned, owner_id
from dodona_replication.core.owner_effects import AskReplica
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import FenceLog, FetchEntries, LogEntries, StoreEntries
from unit.replication.owning import Owning
from unit.replication.replicas import CLUSTER, LOG, entries


@pytest.fixture
def it() -> Owning:
    return Owning()


def with_logs(it: Owning, **logs: tuple[int, ...]) -> None:
    """Give the replicas logs with these epochs, whose owner was the one of epoch 2."""
    for replica, epochs in logs.items():
        it.ask(AskReplica(replica, FenceLog(CLUSTER, LOG, replica, 2)))
        it.ask(AskReplica(replica, StoreEntries(CLUSTER, LOG, replica, 2, 0, 0, entries(*epochs))))
    for _ in range(2):
        document = it.document.document.take_over(owner_id("node-0", bytes(8)))
        it.document = Revisioned(document, it.document.revision)


class Reading:
    """Each page has one entry. A replica gives no entry from some index on."""

    def __init__(self, it: Owning, **fails_from: int) -> None:
        self.fails_from = fails_from
        self.asked: list[tuple[str, int]] = []
        self._ask = it.ask
        it.ask = self  # type: ignore[method-assign]  # a replica is asked by this call

    def __call__(self, asked: AskReplica) -> Any:
        if not isinstance(asked.request, FetchEntries):
            return self._ask(asked)
        index = asked.request.first_index
        self.asked.append((asked.replica, index))
        if index >= self.fails_from.get(asked.replica, 1 << 30):
            return Failure("data_corrupted", "an entry is damaged")
        return self._ask(AskReplica(asked.replica, replace(asked.request, bytes_max=1)))


def open_after_failures(it: Owning) -> Any:
    """As `Owning.open`, for a take-over that repeats what failed."""
    it.take_over()
    it.apply()
    it.wait(300)
    it.become_owner()
    it.wait(1_000)
    assert it.owner.is_open(it.now)
    return it.owner


@pytest.mark.parametrize("index", [1, 2, 4])
def test_another_member_is_read_if_one_gives_no_entries(it: Owning, index: int) -> None:
    """It may have died, or its disk may have damaged an entry. The take-over waited for ever."""
    with_logs(it, a=(1, 1, 2, 2), b=(1, 1, 2, 2), c=(1, 1, 2, 2))
    reading = Reading(it, a=index)
    open_after_failures(it)
    assert [entry.epoch for entry in it.replayed] == [1, 1, 2, 2]
    assert [replica for replica, _ in reading.asked] == ["a"] * index + ["b"] * (5 - index)


def test_a_log_goes_on_only_with_what_was_replayed(it: Owning) -> None:
    """R6: the other members have another entry at the third place, and nothing behind it."""
    with_logs(it, a=(1, 1, 1), b=(1, 1, 2, 2), c=(1, 1, 1))
    reading = Reading(it, b=4)
    it.take_over()
    it.apply()
    it.wait(1_000)
    assert {replica for replica, _ in reading.asked} == {"b"}
    assert not it.owner.is_recovered
    reading.fails_from = {}
    it.wait(200)
    assert it.owner.is_recovered
    assert [entry.epoch for entry in it.replayed] == [1, 1, 2, 2]


def test_what_only_one_member_had_is_left_out_with_it(it: Owning) -> None:
    """R6: it was not acknowledged, since the others lack it."""
    with_logs(it, a=(1, 1, 1), b=(1, 1, 2, 2), c=(1, 1))
    Reading(it, b=3)
    owner = open_after_failures(it)
    assert owner.opening_index == 3
    assert [entry.epoch for entry in it.replayed] == [1, 1]
    assert owner.document.members == ("a", "b", "c")
    assert it.last_index("b") == 3, "what it had more is cut"


def test_a_late_page_of_a_member_that_was_left_is_not_replayed(it: Owning) -> None:
    with_logs(it, a=(1, 1, 1), b=(1, 1, 2, 2), c=(1, 1, 1))
    reading = Reading(it, b=3)
    it.take_over()
    it.apply()
    taking = it.owner
    assert taking.source == "c"
    late = AskReplica("b", FetchEntries(CLUSTER, LOG, "b", taking.epoch, 3))
    taking.handle_reply(late, LogEntries(entries(1, 1, 2, 2)[2:]), it.now.instant_us, it.now)
    it.drive()
    assert ("b", 3) in reading.asked
    assert [entry.epoch for entry in it.replayed] == [1, 1]


@pytest.mark.parametrize(("index", "replayed"), [(1, [3, 4]), (2, [1])])
def test_a_member_that_has_cut_more_is_read_only_if_nothing_was_replayed(
    it: Owning, index: int, replayed: list[int]
) -> None:
    """Else the log would not begin where the replay began."""
    with_logs(it, a=(1, 1, 2, 2), b=(1, 1, 2, 2), c=(1, 1, 2, 2))
    for replica in "bc":
        it.ask(AskReplica(replica, StoreEntries(CLUSTER, LOG, replica, 2, 4, 2, (), 3, 2)))
    reading = Reading(it, a=index)
    it.take_over()
    it.apply()
    it.wait(500)
    assert [entry.index for entry in it.replayed] == replayed
    assert reading.asked[0] == ("a", 1)
    assert it.owner.is_recovered is (index == 1)
