"""Candidates wait at a replica until the owner of a log is silent."""

from dodona_replication.core.replica import ReplicaLimits
from dodona_replication.core.silence import OWNERS_MAX
from dodona_wire.messages.replicas import (
    SILENCE_MS_MAX,
    AwaitSilence,
    FenceLog,
    LogSilence,
    PingLog,
    StoreEntries,
)
from unit.replication.replicas import LOG, Rig, entries, request

MS = 1_000


def fenced(epoch: int = 1, limits: ReplicaLimits | None = None) -> Rig:
    rig = Rig(limits=limits)
    rig.get(request(FenceLog, epoch))
    return rig


def test_a_silent_owner_is_reported_when_the_silence_is_long_enough() -> None:
    rig = fenced()
    number = rig.ask(request(AwaitSilence, 1, 700, 5_000))
    rig.wait(699 * MS)
    assert number not in rig.answers
    rig.wait(1 * MS)
    assert rig.answers[number] == LogSilence(1, 700)
    assert rig.core.statistics().waiter_count == 0
    assert rig.core.next_deadline() is None


def test_a_silence_that_is_long_enough_is_reported_at_once() -> None:
    rig = fenced()
    rig.wait(800 * MS)
    assert rig.answers[rig.ask(request(AwaitSilence, 1, 700, 5_000))] == LogSilence(1, 800)


def test_pings_and_entries_of_the_owner_end_its_silence() -> None:
    rig = fenced()
    number = rig.ask(request(AwaitSilence, 1, 700, 5_000))
    rig.wait(500 * MS)
    rig.get(request(PingLog, 1, 1))
    rig.wait(500 * MS)
    rig.get(request(StoreEntries, 1, 0, 0, entries(1)))
    rig.wait(699 * MS)
    assert number not in rig.answers
    rig.wait(1 * MS)
    assert rig.answers[number] == LogSilence(1, 700)


def test_requests_of_other_epochs_end_no_silence() -> None:
    rig = fenced(2)
    number = rig.ask(request(AwaitSilence, 2, 700, 5_000))
    rig.wait(600 * MS)
    rig.get(request(PingLog, 1, 1))
    rig.get(request(FenceLog, 1))
    rig.get(request(PingLog, 3, 1))
    rig.wait(100 * MS)
    assert rig.answers[number] == LogSilence(2, 700)


def test_a_wait_has_an_end() -> None:
    rig = fenced()
    number = rig.ask(request(AwaitSilence, 1, 700, 1_000))
    for _ in range(3):
        rig.wait(300 * MS)
        rig.get(request(PingLog, 1, 1))
    rig.wait(100 * MS)
    assert rig.answers[number] == LogSilence(1, 100)


def test_another_epoch_is_reported_at_once() -> None:
    rig = fenced(2)
    for epoch in (1, 3):
        number = rig.ask(request(AwaitSilence, epoch, 700, 5_000))
        assert rig.answers[number] == LogSilence(2, 0)
    unknown = rig.ask(request(AwaitSilence, 1, 700, 5_000, log="nowhere"))
    assert rig.answers[unknown] == LogSilence(0, 0)


def test_a_log_that_is_not_here_is_reported_in_any_epoch() -> None:
    rig = fenced()
    for epoch in (0, 1):
        number = rig.ask(request(AwaitSilence, epoch, 1, 1, log="nowhere"))
        assert rig.answers[number] == LogSilence(0, 0)


def test_a_take_over_is_reported_to_all_who_wait_for_its_log() -> None:
    rig = fenced()
    rig.get(request(FenceLog, 1, log="other"))
    numbers = [rig.ask(request(AwaitSilence, 1, 700, 5_000)) for _ in range(2)]
    other = rig.ask(request(AwaitSilence, 1, 700, 5_000, log="other"))
    rig.ask(request(FenceLog, 2))
    assert [rig.answers.get(it) for it in numbers] == [LogSilence(2, 0, 1)] * 2
    assert other not in rig.answers


def test_a_start_counts_every_owner_as_heard() -> None:
    rig = fenced()
    rig.wait(10_000 * MS)
    rig.crash()
    number = rig.ask(request(AwaitSilence, 1, 700, 5_000))
    assert number not in rig.answers
    rig.wait(700 * MS)
    assert rig.answers[number] == LogSilence(1, 700)


def test_a_stop_answers_all_who_wait() -> None:
    rig = fenced()
    numbers = [rig.ask(request(AwaitSilence, 1, 700, 5_000)) for _ in range(3)]
    rig.core.finish(rig.now)
    rig.carry_out()
    assert [rig.answers[it] for it in numbers] == [LogSilence(1, 0)] * 3
    assert rig.core.statistics().waiter_count == 0


def test_a_replica_has_a_limit_of_waits() -> None:
    rig = fenced(limits=ReplicaLimits(waiters_max=1))
    rig.ask(request(AwaitSilence, 1, 700, 1_000))
    refused = rig.answers[rig.ask(request(AwaitSilence, 1, 700, 1_000))]
    assert (refused.kind, refused.attributes) == ("overloaded", {"log": LOG})
    rig.wait(700 * MS)
    rig.get(request(PingLog, 1, 1))
    assert rig.ask(request(AwaitSilence, 1, 700, 1_000)) not in rig.answers


def test_times_have_limits() -> None:
    rig = fenced()
    for times in ((0, 1), (1, 0), (SILENCE_MS_MAX + 1, 1), (1, SILENCE_MS_MAX + 1)):
        refused = rig.answers[rig.ask(request(AwaitSilence, 1, *times))]
        assert refused.kind == "invalid_request"


def test_a_log_without_waits_needs_no_ticks() -> None:
    rig = fenced()
    rig.get(request(PingLog, 1, 1))
    assert rig.core.next_deadline() is None


def test_the_processes_that_stand_by_are_listed_for_as_long_as_they_ask() -> None:
    rig = fenced()
    for address in ("http://b", "http://a", "http://b", "", "x" * 600):
        rig.ask(request(AwaitSilence, 1, 700, 1_000, address))
    assert rig.core.candidates(rig.now) == ["http://a", "http://b"]
    rig.wait(9_000 * MS)
    rig.ask(request(AwaitSilence, 1, 700, 1_000, "http://a"))
    rig.wait(2_000 * MS)
    assert rig.core.candidates(rig.now) == ["http://a"]


def test_only_the_last_processes_that_stand_by_are_listed() -> None:
    rig = fenced(limits=ReplicaLimits(candidates_max=2))
    for address in ("a", "b", "a", "c"):
        rig.ask(request(AwaitSilence, 1, 700, 1_000, address))
    assert rig.core.candidates(rig.now) == ["a", "c"]


def test_the_owners_that_followed_each_other_are_counted_for_half_a_minute() -> None:
    rig = fenced()
    assert rig.answers[rig.ask(request(AwaitSilence, 7, 700, 1_000))] == LogSilence(1, 0, 0)
    rig.get(request(FenceLog, 2))
    rig.wait(20_000 * MS)
    rig.get(request(FenceLog, 3))
    rig.get(request(PingLog, 3, 1))
    assert rig.answers[rig.ask(request(AwaitSilence, 7, 700, 1_000))] == LogSilence(3, 0, 2)
    rig.wait(10_000 * MS)
    assert rig.answers[rig.ask(request(AwaitSilence, 7, 700, 1_000))] == LogSilence(3, 10_000, 1)
    for epoch in range(4, 40):
        rig.get(request(FenceLog, epoch))
    found = rig.answers[rig.ask(request(AwaitSilence, 7, 700, 1_000))]
    assert (found.epoch, found.owner_count) == (39, OWNERS_MAX)
