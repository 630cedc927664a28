"""The owner of a replicated log, rule by rule. R4 and so on are rules of the protocol."""

import pytest

from dodona_replication.core.coordination import Applied, InDoubt, Refused
from dodona_replication.core.document import Revisioned, owner_id
from dodona_replication.core.owner_effects import AskReplica
from dodona_wire.messages.replicas import (
    AlignLog,
    FenceLog,
    FetchEntries,
    LogMisaligned,
    PingLog,
    StoreEntries,
)
from dodona_wire.types import Now
from unit.replication.owning import MS, Owning
from unit.replication.replicas import CLUSTER, LOG, entries


@pytest.fixture
def it() -> Owning:
    return Owning()


def other(it: Owning) -> Revisioned:
    """The document after another process took over."""
    taken = it.document.document.take_over(owner_id("node-2", bytes(8)))
    return Revisioned(taken, it.document.revision + 10)


# ---- taking over


def test_nothing_is_fenced_before_the_take_over_is_known(it: Owning) -> None:
    """R3."""
    it.take_over()
    it.owner.handle_answer(it.compares[-1], InDoubt("no answer"), it.now)
    it.owner.handle_document(it.document, it.now)  # the old revision proves nothing
    it.wait(500)
    assert it.owner.tails == {}
    assert len(it.compares) > 1, "it is sent again: on one revision that is harmless"
    it.owner.handle_document(Revisioned(it.compares[0].document, 9), it.now)
    it.drive()
    assert set(it.owner.tails) == {"a", "b", "c"}


def test_a_lost_take_over_ends_the_attempt(it: Owning) -> None:
    it.take_over()
    it.owner.handle_answer(it.compares[-1], Refused(other(it)), it.now)
    it.drive()
    assert it.owner.is_ended
    assert it.ended[0].current == other(it)


def test_a_replica_of_a_higher_epoch_ends_the_attempt(it: Owning) -> None:
    """R32."""
    it.ask(AskReplica("b", FenceLog(CLUSTER, LOG, "b", 7)))
    it.take_over()
    it.apply()
    assert it.owner.is_ended
    assert "replica b has epoch 7" in it.ended[0].reason
    assert it.ended[0].is_too_old


def test_the_fullest_log_of_a_member_is_taken_and_all_members_get_it(it: Owning) -> None:
    """R6, R10, R11: `c` has what no other has, `b` has what nobody acknowledged, `d` is no
    member."""
    logs = {"a": (1, 1), "b": (1, 1, 1, 1), "c": (1, 1, 2), "d": (1, 1, 2, 2, 2)}
    for replica, epochs in logs.items():
        it.ask(AskReplica(replica, FenceLog(CLUSTER, LOG, replica, 2)))
        store = StoreEntries(CLUSTER, LOG, replica, 2, 0, 0, entries(*epochs))
        it.ask(AskReplica(replica, store))
    it.document = Revisioned(
        it.document.document.take_over(owner_id("node-0", bytes(8))), it.document.revision
    )
    it.document = Revisioned(
        it.document.document.take_over(owner_id("node-0", bytes(8))), it.document.revision
    )
    owner = it.open()
    assert [entry.epoch for entry in it.replayed] == [1, 1, 2]
    assert owner.opening_index == 4
    for replica in "abc":
        found = it.stores[replica].read(LOG, 1, 9, 9, 1 << 20)
        assert [entry.epoch for entry in found] == [1, 1, 2, 3]


def test_fenced_members_hear_of_the_take_over_while_a_long_log_is_read(it: Owning) -> None:
    """Otherwise they would report a silence, and another process would take the log over."""
    for replica in "abc":
        it.ask(AskReplica(replica, FenceLog(CLUSTER, LOG, replica, 1)))
        it.ask(AskReplica(replica, StoreEntries(CLUSTER, LOG, replica, 1, 0, 0, entries(1))))
    it.document = Revisioned(
        it.document.document.take_over(owner_id("node-0", bytes(8))), it.document.revision
    )
    it.stays = FetchEntries
    it.take_over()
    it.apply()
    asked = it.asked_count(PingLog)
    it.wait(1_000)
    assert not it.owner.is_recovered
    assert it.asked_count(PingLog) - asked >= 3 * (1_000 // it.limits.ping_ms - 1)
    assert it.compares == it.compares[:1]


def test_one_fenced_member_is_enough_after_a_short_wait(it: Owning) -> None:
    it.away = {"b", "c"}
    it.take_over()
    it.apply()
    assert not it.owner.is_recovered
    it.wait(50)
    assert it.owner.is_recovered
    assert it.owner.source == "a"


@pytest.mark.parametrize("is_released", [True, False])
def test_nothing_is_told_before_the_lease_of_the_owner_before_is_over(is_released: bool) -> None:
    """R21, R31: the owner before may still read, and does not know what was recovered."""
    it = Owning(is_released=is_released)
    it.take_over()
    it.apply()
    it.become_owner()
    assert it.owner.acknowledged_index == it.owner.opening_index
    assert bool(it.acknowledged) is is_released
    assert it.owner.may_read(it.now) is is_released
    it.wait(it.limits.wait_us // MS - 20)
    assert bool(it.acknowledged) is is_released
    it.wait(40)
    assert it.acknowledged == [1]
    assert it.owner.may_read(it.now)


# ---- acknowledging


def test_an_entry_is_acknowledged_when_all_members_have_it(it: Owning) -> None:
    """R12."""
    it.open()
    index = it.append()
    assert it.acknowledged[-1] == index
    it.away = {"c"}
    late = it.append()
    assert it.acknowledged[-1] == index
    it.away = set()
    it.wait(400)
    assert it.acknowledged[-1] == late
    assert it.last_index("c") == late


def test_a_silent_member_is_dropped_by_the_document_first(it: Owning) -> None:
    """R13."""
    owner = it.open()
    it.away = {"c"}
    index = it.append()
    count = len(it.compares)
    it.wait(900)
    assert [compare.document.members for compare in it.compares[count:]] == [("a", "b")]
    assert it.acknowledged[-1] < index
    assert not owner.may_read(it.now), "the lease needs all members, too"
    it.apply()
    assert it.acknowledged[-1] == index
    assert owner.may_read(it.now)


def test_the_set_never_gets_smaller_than_it_may(it: Owning) -> None:
    """R14."""
    owner = it.open()
    it.away = {"c"}
    it.wait(900)
    it.apply()
    it.away = {"b", "c"}
    count = len(it.compares)
    index = it.append()
    it.wait(3000)
    assert it.compares[count:] == []
    assert it.acknowledged[-1] < index
    assert not owner.may_read(it.now)


def test_a_learner_joins_with_all_that_is_acknowledged(it: Owning) -> None:
    """R15, R16: it counts from before the change is sent."""
    owner = it.open()
    for _ in range(5):
        it.append()
    count = len(it.compares)
    owner.offer(["d"], it.now)
    it.drive()
    it.wait(200)
    assert [compare.document.members for compare in it.compares[count:]] == [("a", "b", "c", "d")]
    assert it.last_index("d") == it.acknowledged[-1]
    it.away = {"d"}
    index = it.append()
    assert it.acknowledged[-1] < index, "the document may have the learner already"
    it.away = set()
    it.wait(300)
    assert it.acknowledged[-1] == index


def test_a_learner_that_is_far_behind_begins_with_the_checkpoint(it: Owning) -> None:
    """R24, R25: what was cut is read by nobody."""
    owner = it.open()
    for _ in range(20):
        checkpoint = it.append(b"y" * 1000)
    owner.cut(checkpoint, it.now)
    it.drive()
    for replica in "abc":
        assert it.stores[replica].logs()[LOG].tail.first_index == checkpoint
    owner.offer(["d"], it.now)
    it.drive()
    it.wait(300)
    tail = it.stores["d"].logs()[LOG].tail
    assert (tail.first_index, tail.last_index) == (checkpoint, owner.last_index)


def test_a_learner_gets_what_the_owner_has_forgotten_from_a_member(it: Owning) -> None:
    owner = it.open()
    owner._recent._kept_bytes_max = 10_000
    for _ in range(100):
        it.append(b"z" * 1_000)
    assert owner._recent.first_index > 50
    owner.offer(["d"], it.now)
    it.drive()
    it.wait(300)
    assert it.last_index("d") == owner.last_index


def test_one_change_at_a_time_and_a_doubt_ends_by_a_higher_revision(it: Owning) -> None:
    """R17."""
    owner = it.open()
    it.away = {"c"}
    it.wait(900)
    count = len(it.compares)
    owner.handle_answer(it.compares[-1], InDoubt("no answer"), it.now)
    owner.handle_document(it.document, it.now)
    owner.offer(["d"], it.now)
    it.wait(500)
    assert {compare.document for compare in it.compares[count:]} == {
        it.compares[count - 1].document
    }
    applied = Revisioned(it.compares[-1].document, 50)
    # The repeat is refused, since the first one was applied.
    owner.handle_answer(it.compares[-1], Refused(applied), it.now)
    it.drive()
    assert owner.document.members == ("a", "b")
    assert not owner.is_ended


def test_an_answer_that_comes_late_says_nothing_about_the_next_change(it: Owning) -> None:
    """R17. The document was seen before the answer came, and the next change was sent."""
    owner = it.open()
    it.away = {"c"}
    it.wait(900)
    first = it.compares[-1]
    it.document = Revisioned(first.document, it.document.revision + 1)
    owner.handle_document(it.document, it.now)
    it.drive()
    owner.offer(["d"], it.now)
    it.wait(100)
    assert it.compares[-1].document.members == ("a", "b", "d")
    owner.handle_answer(first, Applied(it.document.revision), it.now)
    it.drive()
    assert owner.document.members == ("a", "b")
    assert owner.ownership.pending == it.compares[-1]


# ---- the end


def test_another_owner_ends_it(it: Owning) -> None:
    owner = it.open()
    owner.handle_document(other(it), it.now)
    it.drive()
    assert owner.is_ended
    assert not owner.may_read(it.now)
    assert it.ended[0].current == other(it)


def test_after_a_release_nothing_is_read(it: Owning) -> None:
    """R31: whatever the coordinator answers."""
    owner = it.open()
    owner.release(it.now)
    it.drive()
    assert not owner.may_read(it.now)
    owner.handle_answer(it.compares[-1], InDoubt("no answer"), it.now)
    it.wait(300)
    assert not owner.may_read(it.now)
    assert it.compares[-1].document.released
    it.apply()
    assert owner.is_ended


def test_the_lease_counts_from_the_sending(it: Owning) -> None:
    """R18."""
    owner = it.open()
    it.away = {"b"}
    before_us = owner.lease_until_us()
    late = AskReplica("b", FenceLog(CLUSTER, LOG, "b", owner.epoch))
    sent_us = it.now.instant_us
    it.wait(600)
    it.away = set()
    owner.handle_reply(late, it.ask(late), sent_us, it.now)
    assert owner.lease_until_us() == sent_us + it.limits.lease_us
    assert owner.lease_until_us() >= before_us


def test_without_a_lease_a_read_waits_for_answers_to_later_requests() -> None:
    """R22: and a new owner does not wait for a lease."""
    it = Owning(is_released=False, lease_ms=0)
    it.take_over()
    it.apply()
    it.become_owner()
    owner = it.owner
    assert owner.is_open(it.now)
    since_us = it.now.instant_us
    it.wait(10)
    assert not owner.may_read(it.now)
    assert owner.may_read_since(since_us - 1, it.now), "the opening record was stored since"
    since_us = it.now.instant_us
    it.away = {"b"}
    owner.ping(it.now)
    it.drive()
    assert not owner.may_read_since(since_us, it.now)
    it.away = set()
    it.wait(10)
    owner.ping(it.now)
    it.drive()
    assert owner.may_read_since(since_us, it.now)
    assert not owner.may_read_since(it.now.instant_us + 1, it.now)


# ---- members that are slow or damaged


def test_a_member_that_answers_but_stores_nothing_is_dropped(it: Owning) -> None:
    """It may be slow, or its disk full."""
    owner = it.open()
    it.cores["b"].note_disk("the disk is full", it.now)
    index = it.append()
    it.wait(it.limits.slow_ms - 100)
    assert owner.acknowledged_index < index
    assert owner.document.members == ("a", "b", "c")
    it.wait(300)
    assert it.compares[-1].document.members == ("a", "c")
    it.apply()
    assert owner.acknowledged_index == index


def test_a_full_replica_leaves_its_place_to_a_spare(it: Owning) -> None:
    """It answers, so it is not silent. It stayed the learner, since its address comes first."""
    owner = it.open()
    owner.offer("abcd", it.now, 3)
    it.cores["b"].note_disk("the disk is full", it.now)
    it.append()
    it.wait(it.limits.slow_ms + 200)
    it.apply()
    assert owner.document.members == ("a", "c")
    it.wait(1_000)
    it.apply()
    assert [*owner.document.members] == ["a", "c", "d"]
    owner.offer("ab", it.now, 4)
    it.wait(1_000)
    assert owner.ownership.pending is None
    it.cores["b"].note_disk(None, it.now)
    it.wait(1_000)
    it.apply()
    assert [*owner.document.members] == ["a", "c", "d", "b"], "once it has space again"


def test_a_learner_that_may_be_a_member_already_is_not_forgotten(it: Owning) -> None:
    """Its disk fills up while the answer to the change is missing: it counts."""
    owner = it.open()
    owner.offer("abcd", it.now, 4)
    it.wait(500)
    assert it.compares[-1].document.members == ("a", "b", "c", "d")
    it.cores["d"].note_disk("the disk is full", it.now)
    index = it.append()
    it.wait(500)
    assert owner.acknowledged_index < index
    it.apply()
    assert owner.acknowledged_index < index
    it.cores["d"].note_disk(None, it.now)
    it.wait(500)
    assert owner.acknowledged_index == index


def test_nobody_is_dropped_for_what_no_member_has(it: Owning) -> None:
    owner = it.open()
    for core in it.cores.values():
        core.note_disk("the disk is full", it.now)
    it.append()
    it.wait(2 * it.limits.slow_ms)
    assert owner.ownership.pending is None
    assert owner.document.members == ("a", "b", "c")


def test_an_owner_that_stood_still_drops_nobody(it: Owning) -> None:
    """The answers of the replicas wait for it."""
    owner = it.open()
    late_us = 5 * it.limits.silent_ms * 1000
    it.now = Now(it.now.instant_us + late_us, it.now.unix_us + late_us)
    assert not owner.may_read(it.now)
    assert owner.missed(it.now) == ()
    owner.tick(it.now)
    it.drive()
    assert owner.ownership.pending is None
    assert owner.may_read(it.now)
    it.away = {"b"}
    it.wait(it.limits.silent_ms + 400)
    assert it.compares[-1].document.members == ("a", "c")


def test_no_more_replicas_join_than_are_wanted(it: Owning) -> None:
    owner = it.open()
    owner.offer("abcd", it.now, 3)
    it.wait(300)
    assert owner.ownership.pending is None
    owner.offer("abcd", it.now, 4)
    it.wait(300)
    assert it.compares[-1].document.members == ("a", "b", "c", "d")


def test_a_learner_that_lags_behind_a_cut_begins_anew(it: Owning) -> None:
    """R25: also if the owner still has the entries that it needs next."""
    owner = it.open()
    it.held = {"d"}
    owner.offer("abcd", it.now, 4)
    it.drive()
    for _ in range(30):
        it.append()
    assert owner.ownership.pending is None
    owner.cut(25, it.now)
    it.release_held()
    it.wait(500)
    assert it.stores["d"].logs()[LOG].tail.first_index == 25
    assert it.compares[-1].document.members == ("a", "b", "c", "d")


def test_a_dead_member_of_the_smallest_set_is_replaced(it: Owning) -> None:
    """R14: first a learner joins, although the set has as many replicas as are wanted."""
    owner = it.open()
    it.away = {"a"}
    it.wait(800)
    it.apply()
    assert owner.document.members == ("b", "c")
    owner.offer("bcd", it.now, 2)
    it.away = {"a", "c"}
    it.wait(1_200)
    assert it.compares[-1].document.members == ("b", "c", "d")
    it.apply()
    it.wait(200)
    assert it.compares[-1].document.members == ("b", "d")
    it.apply()
    index = it.append()
    assert owner.acknowledged_index == index


def test_a_set_that_may_lose_no_member_says_who_is_silent(it: Owning) -> None:
    """R14."""
    owner = it.open()
    assert owner.missed(it.now) == ()
    it.away = {"a"}
    it.wait(800)
    assert it.compares[-1].document.members == ("b", "c")
    it.apply()
    assert owner.missed(it.now) == ()
    it.away = {"a", "c"}
    it.wait(800)
    assert owner.missed(it.now) == ("c",)
    it.away = {"a"}
    it.wait(300)
    assert owner.missed(it.now) == ()


def test_a_replica_that_contradicts_itself_is_asked_again_after_a_pause(it: Owning) -> None:
    """Only damage can make one. Without a pause it would be asked again and again."""
    owner = it.open()
    asked = AskReplica("b", StoreEntries(CLUSTER, LOG, "b", owner.epoch, 1, 1, ()))
    owner.handle_reply(asked, LogMisaligned(1, 0, ((1, 1),)), it.now.instant_us, it.now)
    assert owner.take_effects() == []
    it.wait(it.limits.repeat_ms + 10)
    index = it.append()
    assert it.last_index("b") == index


def test_an_unknown_outcome_is_looked_up_before_more_is_sent(it: Owning) -> None:
    """A request may have been carried out although its connection was lost."""
    it.open()
    it.away = {"b"}
    it.append()
    asked = [type(effect.request) for effect in it.owner.take_effects()]
    assert StoreEntries not in asked
    assert AlignLog not in asked
    it.away = set()
    it.wait(300)
    assert it.last_index("b") == it.owner.last_index
