"""The core of a log replica, rule by rule (R4 and so on, of the replication protocol)."""

from typing import Any

import pytest

from dodona_replication.core.entries import make_entry
from dodona_replication.core.replica import LogSummary, ReplicaLimits
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps
from dodona_wire.messages.replicas import (
    ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    AlignLog,
    BeginLog,
    EntriesStored,
    Entry,
    EpochTooOld,
    FenceFirst,
    FenceLog,
    FetchEntries,
    LogAligned,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogPong,
    PingLog,
    StoreEntries,
    WrongReplica,
)
from unit.replication.replicas import CLUSTER, LOG, REPLICA, Rig, entries, request

OTHERS: list[Any] = [
    lambda epoch: request(FetchEntries, epoch, 1),
    lambda epoch: request(AlignLog, epoch, 0, 0),
    lambda epoch: request(StoreEntries, epoch, 0, 0, entries(1)),
    lambda epoch: request(BeginLog, epoch, 0, entries(1)),
    lambda epoch: request(PingLog, epoch, 1),
]
"""Every request of an owner but the fence."""


def rig_of(*epochs: int, at_epoch: int = 1) -> Rig:
    """A rig with such a log, fenced at this epoch."""
    rig = Rig()
    rig.get(request(FenceLog, max([at_epoch, *epochs])))
    if epochs:
        stored = request(StoreEntries, max(epochs), 0, 0, entries(*epochs))
        assert rig.get(stored) == EntriesStored(len(epochs))
    return rig


def has(rig: Rig) -> list[tuple[int, int]]:
    """Index and epoch of each entry that is durable."""
    tail = rig.store.logs()[LOG].tail
    read = rig.store.read(LOG, tail.first_index, tail.last_index, 1 << 40, 1 << 40)
    return [(it.index, it.epoch) for it in read]


# R4: epochs


def test_a_fence_is_answered_after_its_epoch_is_durable() -> None:
    rig = Rig()
    number = rig.ask(request(FenceLog, 3))
    assert number not in rig.answers
    rig.crash()
    assert rig.get(request(FenceLog, 1)) == LogFenced(1, 0, ())  # the fence at 3 is forgotten
    rig.get(request(FenceLog, 3))
    rig.crash()
    assert rig.get(request(FenceLog, 2)) == EpochTooOld(3)


def test_a_fence_holds_before_it_is_durable() -> None:
    rig = rig_of(1)
    rig.ask(request(FenceLog, 2))
    late = rig.ask(request(StoreEntries, 1, 1, 1, entries(1, first_index=2)))
    rig.flush()
    assert rig.answers[late] == EpochTooOld(2)
    assert has(rig) == [(1, 1)]


def test_a_repeated_fence_changes_nothing() -> None:
    rig = rig_of(1, 1, 2)
    assert [rig.get(request(FenceLog, 2)) for _ in range(2)] == [
        LogFenced(1, 0, ((1, 2), (2, 3)))
    ] * 2
    assert rig.core.statistics().fence_count == 1


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_every_request_of_another_epoch_is_refused(number: int) -> None:
    rig = rig_of(at_epoch=5)
    assert rig.get(OTHERS[number](4)) == EpochTooOld(5)
    assert rig.get(OTHERS[number](6)) == FenceFirst(5)
    assert has(rig) == []


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_only_a_fence_makes_a_log(number: int) -> None:
    rig = Rig()
    assert rig.get(OTHERS[number](1)) == FenceFirst(0)
    assert rig.store.logs() == {}


def test_logs_have_epochs_of_their_own() -> None:
    rig = rig_of(1, at_epoch=1)
    rig.get(request(FenceLog, 9, log="other"))
    assert rig.get(request(StoreEntries, 1, 1, 1, entries(1, first_index=2))) == EntriesStored(2)
    assert rig.get(request(StoreEntries, 1, 0, 0, (), log="other")) == EpochTooOld(9)


# R6, R7: what a fence and a fetch report


def test_a_fence_reports_where_each_epoch_ends() -> None:
    rig = rig_of(1, 1, 3, 4)
    assert rig.get(request(FenceLog, 7)) == LogFenced(1, 0, ((1, 2), (3, 3), (4, 4)))


def test_a_fence_reports_entries_only_after_their_sync() -> None:
    rig = rig_of(1)
    rig.ask(request(StoreEntries, 1, 1, 1, entries(1, first_index=2)))
    fence = rig.ask(request(FenceLog, 2))
    assert fence not in rig.answers
    rig.crash()
    assert rig.get(request(FenceLog, 2)) == LogFenced(1, 0, ((1, 1),))


def test_a_fetch_reads_only_what_is_durable() -> None:
    rig = rig_of(1)
    rig.ask(request(StoreEntries, 1, 1, 1, entries(1, first_index=2)))
    fetch = rig.ask(request(FetchEntries, 1, 1))
    assert fetch not in rig.answers
    rig.flush()
    assert rig.answers[fetch] == LogEntries(entries(1, 1))


def test_a_fetch_comes_in_pages() -> None:
    rig = rig_of(1, 1, 1, 1)
    assert rig.get(request(FetchEntries, 1, 1, 14)) == LogEntries(entries(1, 1))
    assert rig.get(request(FetchEntries, 1, 3, 1)) == LogEntries(entries(1, first_index=3))
    assert rig.get(request(FetchEntries, 1, 5)) == LogEntries(())
    assert rig.get(request(FetchEntries, 1, 6)) == LogMisaligned(1, 0, ((1, 4),))


def test_a_fetch_has_nothing_that_a_later_owner_stored_meanwhile() -> None:
    rig = rig_of(1, 1)
    rig.ask(request(StoreEntries, 1, 2, 1, entries(1, first_index=3)))
    fetch = rig.ask(request(FetchEntries, 1, 1))
    rig.ask(request(FenceLog, 2))
    rig.ask(request(AlignLog, 2, 1, 1))
    rig.ask(request(StoreEntries, 2, 1, 1, entries(2, 2, first_index=2)))
    rig.flush()
    assert rig.answers[fetch] == LogEntries(entries(1))


def test_an_answer_waits_for_the_sync_of_what_it_reports() -> None:
    rig = rig_of(1)
    body = request(StoreEntries, 1, 1, 1, entries(1, first_index=2))
    numbers = [rig.ask(body), rig.ask(body)]  # the second one is a repeat
    assert not rig.answers.keys() & {*numbers}
    rig.flush()
    assert [rig.answers[it] for it in numbers] == [EntriesStored(2)] * 2


# R8: the replica's id


def test_a_request_for_another_replica_or_cluster_is_refused() -> None:
    rig = Rig()
    assert rig.get(FenceLog(CLUSTER, LOG, "disk-0", 1)) == WrongReplica(REPLICA)
    refused = rig.get(FenceLog("away", LOG, REPLICA, 1))
    assert refused.kind == "invalid_request"
    assert "cluster home" in refused.message
    assert rig.store.logs() == {}


# R9: entries follow the entry before


def test_entries_follow_the_entry_that_the_log_has() -> None:
    rig = rig_of(1, 1)
    misaligned = LogMisaligned(1, 0, ((1, 2),))
    rig.get(request(FenceLog, 3))
    for previous in ((3, 1), (2, 2), (1, 2)):
        epoch = max(previous[1], 2)
        body = request(StoreEntries, 3, *previous, entries(epoch, first_index=previous[0] + 1))
        assert rig.get(body) == misaligned
    assert has(rig) == [(1, 1), (2, 1)]


def test_entries_that_are_there_are_skipped() -> None:
    rig = rig_of(1, 1, 1)
    body = request(StoreEntries, 1, 1, 1, entries(1, 1, 1, first_index=2))
    assert rig.get(body) == EntriesStored(4)
    assert has(rig) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert rig.core.statistics().stored_count == 4


def test_another_epoch_at_the_same_index_stores_nothing() -> None:
    rig = rig_of(1, 1, 1)
    rig.get(request(FenceLog, 2))
    body = request(StoreEntries, 2, 1, 1, entries(1, 2, 2, first_index=2))
    assert rig.get(body) == LogMisaligned(1, 0, ((1, 3),))
    assert has(rig) == [(1, 1), (2, 1), (3, 1)]


def test_an_answer_names_the_last_entry_of_its_own_request() -> None:
    rig = rig_of(1, 1, 1)
    assert rig.get(request(StoreEntries, 1, 0, 0, entries(1, 1))) == EntriesStored(2)
    assert rig.get(request(StoreEntries, 1, 1, 1, ())) == EntriesStored(1)


# R10: alignment


def test_an_alignment_drops_what_is_behind_the_entry() -> None:
    rig = rig_of(1, 1, 2)
    rig.get(request(FenceLog, 3))
    assert rig.get(request(AlignLog, 3, 2, 1)) == LogAligned(2)
    assert has(rig) == [(1, 1), (2, 1)]
    assert rig.get(request(AlignLog, 3, 0, 0)) == LogAligned(0)
    assert has(rig) == []


def test_an_alignment_needs_its_entry() -> None:
    rig = rig_of(1, 1)
    rig.get(request(FenceLog, 3))
    for index, epoch in ((3, 1), (2, 2), (0, 1), (-1, 0)):
        answer = rig.get(request(AlignLog, 3, index, epoch))
        assert answer == LogMisaligned(1, 0, ((1, 2),))
    assert has(rig) == [(1, 1), (2, 1)]


def test_a_late_alignment_drops_no_entry_of_its_own_epoch() -> None:
    rig = rig_of(1, 1)
    rig.get(request(FenceLog, 2))
    rig.get(request(AlignLog, 2, 1, 1))
    rig.get(request(StoreEntries, 2, 1, 1, entries(2, first_index=2)))
    assert rig.get(request(AlignLog, 2, 1, 1)) == LogAligned(2)
    assert has(rig) == [(1, 1), (2, 2)]


def test_an_alignment_does_not_drop_the_checkpoint_of_a_cut_log() -> None:
    rig = rig_of(1, 1)
    rig.get(request(StoreEntries, 1, 2, 1, (), 2, 1))
    rig.get(request(FenceLog, 2))
    assert rig.get(request(AlignLog, 2, 1, 1)) == LogMisaligned(2, 1, ((1, 2),))
    assert rig.get(request(AlignLog, 2, 0, 0)) == LogMisaligned(2, 1, ((1, 2),))
    assert has(rig) == [(2, 1)]


# R24: the cut


def test_a_log_is_cut_before_the_checkpoint_that_it_has() -> None:
    rig = rig_of(1, 1)
    body = request(StoreEntries, 1, 2, 1, entries(1, 1, first_index=3), 3, 1)
    assert rig.get(body) == EntriesStored(4)
    assert has(rig) == [(3, 1), (4, 1)]
    assert rig.get(request(FenceLog, 2)) == LogFenced(3, 1, ((1, 4),))


def test_a_log_is_not_cut_without_the_checkpoint() -> None:
    rig = rig_of(1, 1)
    for cut in ((3, 1), (2, 2), (0, 0)):
        assert rig.get(request(StoreEntries, 1, 2, 1, (), *cut)) == EntriesStored(2)
    assert has(rig) == [(1, 1), (2, 1)]


def test_entries_follow_a_cut_log_by_the_epoch_that_it_kept() -> None:
    rig = rig_of(1, 1)
    rig.get(request(StoreEntries, 1, 2, 1, (), 2, 1))
    assert rig.get(request(StoreEntries, 1, 1, 1, entries(1, 1, first_index=2))) == EntriesStored(3)
    assert rig.get(request(StoreEntries, 1, 0, 0, entries(1, 1))) == LogMisaligned(2, 1, ((1, 3),))
    assert has(rig) == [(2, 1), (3, 1)]


# R25: a learner begins anew


def test_a_learner_begins_with_the_checkpoint() -> None:
    rig = rig_of(1, 1)
    rig.get(request(FenceLog, 3))
    begun = entries(2, 3, first_index=7)
    assert rig.get(request(BeginLog, 3, 2, begun)) == EntriesStored(8)
    assert rig.get(request(FenceLog, 3)) == LogFenced(7, 2, ((2, 7), (3, 8)))
    assert has(rig) == [(7, 2), (8, 3)]
    assert rig.get(request(StoreEntries, 3, 8, 3, entries(3, first_index=9))) == EntriesStored(9)


def test_a_late_begin_changes_nothing() -> None:
    rig = rig_of(at_epoch=3)
    begin = request(BeginLog, 3, 2, entries(2, first_index=7))
    rig.get(begin)
    rig.get(request(StoreEntries, 3, 7, 2, entries(3, first_index=8)))
    assert rig.get(begin) == EntriesStored(7)
    assert has(rig) == [(7, 2), (8, 3)]
    rig.get(request(StoreEntries, 3, 8, 3, (), 8, 3))
    assert rig.get(begin) == LogMisaligned(8, 2, ((3, 8),))
    assert has(rig) == [(8, 3)]


def test_a_begin_replaces_an_old_tail_at_its_index() -> None:
    rig = rig_of(1, 1, 1)
    rig.get(request(FenceLog, 3))
    assert rig.get(request(BeginLog, 3, 1, entries(2, first_index=2))) == EntriesStored(2)
    assert has(rig) == [(2, 2)]


# Malformed requests


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (entries(1, 1, first_index=3), "it follows entry 1"),
        (entries(1, first_index=2) + entries(1, first_index=4), "it follows entry 2"),
        (entries(3, first_index=2), "between the one before"),
        (entries(2, 1, first_index=2), "between the one before"),
        ((*entries(2, first_index=2), Entry(3, 2, 0, b"x")), "its checksum is wrong"),
    ],
    ids=["gap before", "gap within", "epoch of later", "epochs fall", "checksum"],
)
def test_malformed_entries_store_nothing(wrong: Any, says: str) -> None:
    rig = rig_of(1)
    rig.get(request(FenceLog, 2))
    answer = rig.get(request(StoreEntries, 2, 1, 1, wrong))
    assert answer.kind == "invalid_request"
    assert says in answer.message
    assert answer.attributes["log"] == LOG
    assert has(rig) == [(1, 1)]


@pytest.mark.parametrize(
    "body",
    [
        request(FenceLog, 0),
        request(FenceLog, 1 << 53),
        request(FenceLog, 1, log="no/name"),
        request(FetchEntries, 1, 1, 0),
        request(StoreEntries, 1, -1, 1, entries(1, first_index=0)),
        request(StoreEntries, 1, 0, 1, entries(1)),
        request(StoreEntries, 1, 1, 0, entries(1, first_index=2)),
        request(BeginLog, 1, 0, ()),
        request(BeginLog, 1, 1, (Entry(9, 1, 0, b"x"),)),
        GenerateTimestamps(1),
    ],
    ids=[
        *("epoch 0", "epoch too high", "name of the log", "no bytes", "negative index"),
        *(
            "epoch of entry 0",
            "no epoch",
            "no entries",
            "begin with a wrong checksum",
            "another message",
        ),
    ],
)
def test_a_malformed_request_changes_nothing(body: Any) -> None:
    rig = rig_of(1)
    assert rig.get(body).kind == "invalid_request"
    assert has(rig) == [(1, 1)]
    assert list(rig.store.logs()) == [LOG]


def test_a_message_has_limits() -> None:
    rig = rig_of(1)
    many = entries(*[1] * (ENTRIES_MAX + 1), first_index=2)
    long = (make_entry(2, 1, bytes(ENTRY_BYTES_MAX + 1)),)
    for wrong in (many, long):
        assert rig.get(request(StoreEntries, 1, 1, 1, wrong)).kind == "limit_exceeded"
    assert has(rig) == [(1, 1)]


def test_a_replica_has_a_limit_of_logs() -> None:
    rig = Rig(limits=ReplicaLimits(logs_max=1))
    rig.get(request(FenceLog, 1))
    refused = rig.get(request(FenceLog, 1, log="one-more"))
    assert refused.kind == "limit_exceeded"
    assert list(rig.store.logs()) == [LOG]
    assert rig.get(request(FenceLog, 2)) == LogFenced(1, 0, ())


# A full disk


def test_a_full_disk_refuses_new_entries_only() -> None:
    rig = rig_of(1, 1, 1)
    rig.core.note_disk("the disk of here is full: make room", rig.now)
    new = request(StoreEntries, 1, 3, 1, entries(1, first_index=4), 2, 1)
    for body in (new, request(BeginLog, 1, 1, entries(1, first_index=9))):
        refused = rig.get(body)
        assert isinstance(refused, Failure)
        assert (refused.kind, refused.attributes["log"]) == ("disk_full", LOG)
    assert has(rig) == [(1, 1), (2, 1), (3, 1)]
    assert rig.get(request(StoreEntries, 1, 0, 0, entries(1, 1, 1), 2, 1)) == EntriesStored(3)
    assert rig.get(request(FetchEntries, 1, 2)) == LogEntries(entries(1, 1, first_index=2))
    assert rig.get(request(FenceLog, 2)) == LogFenced(2, 1, ((1, 3),))
    assert rig.get(request(AlignLog, 2, 2, 1)) == LogAligned(2)
    rig.core.note_disk(None, rig.now)
    assert rig.get(request(StoreEntries, 2, 2, 1, entries(2, first_index=3))) == EntriesStored(3)


# Pings


def test_a_pong_has_the_number_and_the_wall_clock() -> None:
    rig = rig_of(1)
    assert rig.get(request(PingLog, 1, 17)) == LogPong(17, rig.now.unix_us)


def test_a_pong_does_not_wait_for_entries() -> None:
    rig = rig_of(1)
    rig.ask(request(StoreEntries, 1, 1, 1, entries(1, first_index=2)))
    assert rig.ask(request(PingLog, 1, 1)) in rig.answers


def test_a_pong_waits_for_its_epoch() -> None:
    rig = rig_of(1)
    rig.ask(request(FenceLog, 2))
    number = rig.ask(request(PingLog, 2, 1))
    assert number not in rig.answers  # after a crash, epoch 1 would be in force again
    rig.flush()
    assert rig.answers[number] == LogPong(1, rig.now.unix_us)


def test_refusals_are_counted_by_kind() -> None:
    rig = rig_of(1, at_epoch=1)
    rig.get(request(FenceLog, 2))
    rig.get(request(PingLog, 1, 1))
    rig.get(request(PingLog, 3, 1))
    rig.get(request(StoreEntries, 2, 7, 1, ()))
    rig.get(FenceLog(CLUSTER, LOG, "disk-0", 1))
    counts = {kind: count for kind, count in rig.core.statistics().refused_by_kind.items() if count}
    assert counts == dict.fromkeys(
        ("epoch_too_old", "fence_first", "misaligned", "wrong_replica"), 1
    )


# What it reports


def test_requests_of_another_cluster_are_counted() -> None:
    rig = rig_of(1)
    rig.get(FenceLog("elsewhere", LOG, REPLICA, 9))
    found = rig.core.statistics()
    assert (found.other_cluster_count, found.refused_by_kind["invalid_request"]) == (1, 1)


def test_a_full_disk_is_reported_while_it_is_full() -> None:
    rig = rig_of(1)
    assert not rig.core.statistics().is_full
    rig.core.note_disk("no space", rig.now)
    assert rig.core.statistics().is_full
    rig.core.note_disk(None, rig.now)
    assert not rig.core.statistics().is_full


def test_logs_are_listed_with_the_silence_of_their_owners() -> None:
    rig = rig_of(1, 1, 2)
    rig.get(request(StoreEntries, 2, 3, 2, (), 2, 1))  # cuts the log
    rig.wait(3_000_000)
    rig.get(FenceLog(CLUSTER, "a-log", REPLICA, 5))
    rig.wait(500_000)
    assert rig.core.summaries(rig.now, 10) == [
        LogSummary("a-log", 5, 1, 0, 500),
        LogSummary(LOG, 2, 2, 3, 3_500),
    ]
    assert [it.log for it in rig.core.summaries(rig.now, 1)] == ["a-log"]
    rig.get(request(PingLog, 2, 1))
    assert rig.core.summaries(rig.now, 10)[1].owner_silent_ms == 0
    rig.get(request(PingLog, 1, 1))  # of an old owner, who does not count
    assert rig.core.summaries(rig.now, 10)[1].owner_silent_ms == 0
