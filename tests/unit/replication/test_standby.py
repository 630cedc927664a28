"""A standby finds a log whose owner is silent: the real core, without replicas and etcd."""

from typing import Any

import pytest

from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_replication.core.owner_effects import AskReplica
from dodona_replication.core.standby import (
    AskDocuments,
    Candidate,
    FoundLog,
    OwnLog,
    Standby,
    StandbyLimits,
    _Watched,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import AwaitSilence, LogSilence
from dodona_wire.types import Now

LOG, OTHER = "cell-1", "cell-2"
LIMITS = StandbyLimits()
AWAY = Failure("unavailable", "no answer")
HERE = owner_id("node-1", b"12345678")
THERE = owner_id("node-2", b"12345678")


def document(
    epoch: int = 1, members: str = "abc", owner: str = THERE, *, released: bool = False
) -> Revisioned:
    made = Document(epoch, owner if epoch else None, tuple(members), 2, released)
    return Revisioned(made, 10 * epoch + len(members))


class Rig:
    """A standby, what it has asked, and the time."""

    def __init__(
        self,
        own: OwnLog | None = None,
        since_us: int | None = None,
        may_take_at_us: dict[str, int] | None = None,
    ) -> None:
        self.now = Now(1_000_000, 0)
        candidate = Candidate("home", "cell-", "http://here")
        self.core = Standby(candidate, LIMITS, self.now, own, since_us, may_take_at_us)
        self.asked: list[AskReplica] = []
        self.reading_count = 0
        self.core.know(frozenset("abc"))
        self.step()

    def step(self, ms: int = 0) -> None:
        """Let time pass. The core is called when it is due."""
        while ms > LIMITS.look_ms:
            self.stand_still(LIMITS.look_ms)
            self._tick()
            ms -= LIMITS.look_ms
        self.stand_still(ms)
        self._tick()

    def stand_still(self, ms: int) -> None:
        """Let time pass, in which this process does not run."""
        self.now = Now(self.now.instant_us + ms * 1000, 0)

    def _tick(self) -> None:
        self.core.tick(self.now)
        for effect in self.core.take_effects():
            if isinstance(effect, AskReplica):
                self.asked.append(effect)
            else:
                assert isinstance(effect, AskDocuments)
                self.reading_count += 1

    def read(self, **found: Revisioned) -> None:
        """The coordinator has these documents, by log."""
        named = {log.replace("_", "-"): it for log, it in found.items()}
        self.core.handle_documents(named, self.now)
        self.step()

    def answer(self, replicas: str, reply: Any, log: str = LOG) -> None:
        """These replicas answer what they were asked last."""
        for replica in replicas:
            (asked,) = [it for it in self.asked if it.replica == replica and it.request.log == log][
                -1:
            ]
            self.asked.remove(asked)
            self.core.handle_reply(asked, reply, self.now)
        self.step()

    @property
    def found(self) -> FoundLog | None:
        return self.core.found

    def asks(self) -> list[str]:
        return sorted(it.replica for it in self.asked)


@pytest.fixture
def rig() -> Rig:
    """It has watched one log for so long that it may take it over."""
    rig = Rig()
    rig.read(cell_1=document())
    rig.step(LIMITS.silence_ms)
    return rig


def test_it_waits_at_each_member_of_each_log(rig: Rig) -> None:
    assert rig.asks() == ["a", "b", "c"]
    times = LIMITS.silence_ms, LIMITS.wait_ms
    assert rig.asked[0].request == AwaitSilence("home", LOG, "a", 1, *times, "http://here")


def test_so_many_silent_members_that_the_owner_can_not_go_on_are_enough(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 700))
    assert rig.found is None
    rig.answer("b", LogSilence(1, 700))
    assert rig.found == FoundLog(LOG, document())
    assert rig.core.next_deadline() is None


def test_one_silent_member_is_not_enough_while_others_hear_the_owner(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 5_000))
    rig.answer("bc", LogSilence(1, 20))
    assert rig.found is None
    assert rig.asks() == ["b", "c"]


def test_members_that_are_away_count_beside_a_silent_one(rig: Rig) -> None:
    """With a spare, this process could have two copies again."""
    rig.core.know(frozenset("cd"))
    rig.answer("ab", AWAY)
    assert rig.found is None
    rig.answer("c", LogSilence(1, 700))
    assert rig.found == FoundLog(LOG, document())


def test_a_log_that_this_process_could_not_open_is_left_alone(rig: Rig) -> None:
    """Its owner may reach the replicas that this process does not."""
    rig.core.know(frozenset("c"))
    rig.answer("ab", AWAY)
    rig.answer("c", LogSilence(1, 700))
    assert rig.found is None


def test_a_member_that_was_away_long_ago_does_not_count(rig: Rig) -> None:
    rig.core.know(frozenset("cd"))
    rig.answer("ab", AWAY)
    rig.step(LIMITS.valid_ms + 1)
    rig.answer("c", LogSilence(1, 2_000))
    assert rig.found is None


def test_without_any_answer_nothing_is_known(rig: Rig) -> None:
    rig.answer("abc", AWAY)
    for _ in range(20):
        rig.step(LIMITS.again_ms)
        rig.answer("abc", AWAY)
    assert rig.found is None


def test_an_old_report_does_not_count(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 700))
    rig.step(LIMITS.valid_ms + 1)
    rig.answer("b", LogSilence(1, 700))
    assert rig.found is None
    rig.answer("a", LogSilence(1, 2_000))
    assert rig.found == FoundLog(LOG, document())


def test_a_member_that_hears_the_owner_again_takes_its_report_back(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 700))
    rig.step(LIMITS.again_ms)
    rig.answer("a", LogSilence(1, 10))
    rig.answer("b", LogSilence(1, 700))
    assert rig.found is None


def test_a_silent_member_is_asked_again_after_a_pause(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 700))
    assert rig.asks() == ["b", "c"]
    rig.step(LIMITS.again_ms - 1)
    assert rig.asks() == ["b", "c"]
    assert rig.core.next_deadline() == rig.now.instant_us + 1000
    rig.step(1)
    assert rig.asks() == ["a", "b", "c"]


def test_a_higher_epoch_at_a_replica_lets_the_documents_be_read(rig: Rig) -> None:
    count = rig.reading_count
    rig.answer("abc", LogSilence(2, 5_000))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    assert rig.reading_count == count + 1
    rig.read(cell_1=document(2))
    assert {it.request.epoch for it in rig.asked} >= {2}


def test_a_new_owner_has_time_to_fence_the_replicas(rig: Rig) -> None:
    """They say how long they have not heard of the owner before."""
    rig.step(LIMITS.documents_ms)
    rig.read(cell_1=document(2))
    rig.answer("abc", LogSilence(1, 9_000))  # asked about epoch 1
    rig.answer("abc", LogSilence(1, 9_000))
    assert rig.found is None
    rig.step(LIMITS.silence_ms)
    rig.answer("ab", LogSilence(1, 9_700))
    assert rig.found == FoundLog(LOG, document(2))


def test_an_owner_that_fenced_nobody_is_found_out() -> None:
    """The replicas do not have the log yet."""
    rig = Rig()
    rig.read(cell_1=document())
    rig.answer("abc", LogSilence(0, 0))
    assert rig.found is None
    rig.step(LIMITS.silence_ms)
    rig.answer("ab", LogSilence(0, 0))
    assert rig.found == FoundLog(LOG, document())


def test_an_answer_about_an_earlier_owner_counts_for_nothing(rig: Rig) -> None:
    rig.step(LIMITS.documents_ms)
    earlier = list(rig.asked)
    rig.read(cell_1=document(2))
    for asked in earlier:
        rig.core.handle_reply(asked, LogSilence(1, 9_000), rig.now)
    assert rig.found is None


def test_another_set_of_the_same_owner_keeps_what_is_known(rig: Rig) -> None:
    rig.answer("a", LogSilence(1, 700))
    rig.read(cell_1=document(members="abd"))
    assert "d" in rig.asks()
    rig.answer("b", LogSilence(1, 700))
    assert rig.found == FoundLog(LOG, document(members="abd"))


def test_a_log_that_is_gone_is_not_waited_for(rig: Rig) -> None:
    asked = list(rig.asked)
    rig.read()
    for it in asked:
        rig.core.handle_reply(it, LogSilence(1, 9_000), rig.now)
    assert rig.found is None


def test_logs_that_never_had_an_owner_and_logs_of_others_are_left_alone() -> None:
    rig = Rig()
    never = document(0, released=True)
    rig.read(cell_1=never, catalog=document(), cell_x=document())
    assert rig.asked == []


def test_two_logs_do_not_add_up() -> None:
    rig = Rig()
    rig.read(cell_1=document(), cell_2=document())
    rig.step(LIMITS.silence_ms)
    rig.answer("a", LogSilence(1, 700))
    rig.answer("b", LogSilence(1, 700), OTHER)
    assert rig.found is None
    rig.answer("c", LogSilence(1, 700), OTHER)
    assert rig.found == FoundLog(OTHER, document())


def test_while_the_coordinator_is_away_it_is_asked_again() -> None:
    rig = Rig()
    assert rig.reading_count == 1
    rig.core.handle_documents(None, rig.now)
    rig.step(LIMITS.again_ms - 1)
    assert rig.reading_count == 1
    rig.step(1)
    assert rig.reading_count == 2
    assert not rig.core.is_watching


def test_documents_are_read_again_and_again(rig: Rig) -> None:
    count = rig.reading_count
    rig.step(LIMITS.documents_ms)
    assert rig.reading_count == count + 1


@pytest.mark.parametrize(
    "seen",
    [
        None,
        document(0, released=True),
        document(3, released=True),
        document(3, owner=HERE),
    ],
)
def test_the_own_log_is_taken_if_nobody_owns_it(seen: Revisioned | None) -> None:
    rig = Rig(OwnLog(LOG, HERE))
    rig.read(**({} if seen is None else {"cell_1": seen}))
    assert rig.found == FoundLog(LOG, seen)
    assert rig.asked == []


def test_the_own_log_is_waited_for_if_another_process_may_own_it() -> None:
    rig = Rig(OwnLog(LOG, HERE))
    rig.read(cell_1=document(3))
    assert rig.found is None
    rig.answer("ab", LogSilence(3, 800))
    assert rig.found == FoundLog(LOG, document(3))


def test_a_log_that_was_given_up_is_left_to_its_node_for_a_while() -> None:
    """A node that stops for a moment gets its log back."""
    rig = Rig()
    free = document(3, released=True)
    rig.read(cell_1=free)
    rig.step(LIMITS.released_ms - 1)
    rig.answer("ab", LogSilence(3, LIMITS.released_ms - 1))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    rig.answer("ab", LogSilence(3, LIMITS.released_ms + LIMITS.again_ms - 1))
    assert rig.found == FoundLog(LOG, free)


def test_a_log_of_another_node_is_left_to_it_at_a_start_of_all_processes() -> None:
    """Replicas count the silence from their own start."""
    rig = Rig()
    rig.read(cell_1=document())
    rig.answer("ab", LogSilence(1, 5_000))
    assert rig.found is None
    assert rig.asks() == ["c"], "the next question comes after a pause"
    rig.step(LIMITS.silence_ms)
    rig.answer("ab", LogSilence(1, 5_700))
    assert rig.found == FoundLog(LOG, document())


def test_a_process_that_was_too_late_once_does_not_begin_to_wait_anew() -> None:
    """The owner dropped a member before it failed, so its document had changed."""
    began_us = 1_000_000 - 10 * LIMITS.silence_ms * 1000
    rig = Rig(since_us=began_us)
    rig.read(cell_1=document(members="ab"))
    rig.answer("a", LogSilence(1, 700))
    assert rig.found == FoundLog(LOG, document(members="ab"))


def test_an_own_log_that_is_newer_than_its_document_is_found_so_that_an_alarm_is_raised() -> None:
    """R32. The take-over compares the epochs, and names the replica."""
    rig = Rig(OwnLog(LOG, HERE))
    rig.read(cell_1=document(2))
    for _ in range(2):
        assert rig.found is None
        rig.answer("a", LogSilence(3, 0))
        rig.step(LIMITS.again_ms)
        rig.read(cell_1=document(2))
    assert rig.found == FoundLog(LOG, document(2))


# Logs that could not be taken over


def silent(rig: Rig, *logs: str) -> None:
    """Two replicas hear nothing of the owners of these logs."""
    for log in logs:
        rig.answer("ab", LogSilence(1, 9_000), log)


def test_a_log_that_could_not_be_taken_over_is_left_alone_for_its_pause() -> None:
    rig = Rig(may_take_at_us={LOG: 1_000_000 + 5_000_000})
    rig.read(cell_1=document())
    rig.step(LIMITS.silence_ms)
    silent(rig, LOG)
    assert rig.found is None
    assert rig.core.report(rig.now).left_alone_count == 1
    rig.step(5_000 - LIMITS.silence_ms)
    assert rig.core.report(rig.now).left_alone_count == 0
    silent(rig, LOG)
    assert rig.found == FoundLog(LOG, document())


def test_another_silent_log_comes_before_one_that_could_not_be_taken_over() -> None:
    """Its pause has ended, and its replicas answered first."""
    rig = Rig(may_take_at_us={LOG: 0})
    rig.read(cell_1=document(), cell_2=document())
    rig.step(LIMITS.silence_ms)
    rig.answer("a", LogSilence(1, 9_000), LOG)
    rig.answer("ab", LogSilence(1, 9_000), OTHER)
    assert rig.found == FoundLog(OTHER, document())


def test_a_log_whose_turn_comes_later_is_found_when_no_other_one_is() -> None:
    rig = Rig(may_take_at_us={LOG: 0})
    rig.read(cell_1=document(), cell_2=document())
    rig.step(LIMITS.silence_ms)
    rig.answer("a", LogSilence(1, 9_000), OTHER)
    silent(rig, LOG)
    assert rig.found == FoundLog(LOG, document())


def test_an_answer_is_looked_at_for_its_own_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all logs at each answer, a standby of thousands of logs would have no time for more."""
    looked: list[_Watched] = []
    is_lost = Standby._is_lost

    def count(core: Standby, watched: _Watched, now: Now) -> bool:
        looked.append(watched)
        return is_lost(core, watched, now)

    monkeypatch.setattr(Standby, "_is_lost", count)
    rig = Rig()
    rig.read(**{f"cell_{number}": document() for number in range(100)})
    rig.step(LIMITS.silence_ms)
    silent(rig, LOG)
    assert rig.found == FoundLog(LOG, document())
    assert len(looked) == 2, "one for each replica that answered"


# A busy machine


def test_an_owner_that_followed_many_others_has_more_time(rig: Rig) -> None:
    """Each new owner of a cell stood still for longer than the others waited, since its start was
    work. So they took the cell from each other, for ever."""
    rig.step(LIMITS.silence_ms_max)
    count = LIMITS.owners_max + 2
    rig.answer("ab", LogSilence(1, 4 * LIMITS.silence_ms - 1, count))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    rig.answer("ab", LogSilence(1, 4 * LIMITS.silence_ms, count))
    assert rig.found == FoundLog(LOG, document())


def test_a_few_owners_that_follow_each_other_have_no_more_time(rig: Rig) -> None:
    rig.answer("ab", LogSilence(1, LIMITS.silence_ms, LIMITS.owners_max))
    assert rig.found == FoundLog(LOG, document())


def test_no_owner_has_more_time_than_the_limit(rig: Rig) -> None:
    rig.step(LIMITS.silence_ms_max)
    rig.answer("a", LogSilence(1, LIMITS.silence_ms_max - 1, 1_000))
    rig.answer("b", LogSilence(1, LIMITS.silence_ms_max, 1_000))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    rig.answer("a", LogSilence(1, LIMITS.silence_ms_max, 1_000))
    assert rig.found == FoundLog(LOG, document())


def test_a_process_that_was_woken_late_waits_longer_for_an_owner(rig: Rig) -> None:
    """The owner stood as still as this process, on the same machine."""
    rig.step(LIMITS.again_ms)
    rig.stand_still(LIMITS.look_ms + 900)
    rig.answer("ab", LogSilence(1, 900))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    rig.answer("ab", LogSilence(1, LIMITS.silence_ms + 900))
    assert rig.found == FoundLog(LOG, document())


def test_how_late_it_was_is_forgotten(rig: Rig) -> None:
    rig.stand_still(LIMITS.look_ms + 900)
    rig.step()
    rig.step(LIMITS.late_valid_ms)
    rig.answer("ab", LogSilence(1, LIMITS.silence_ms))
    assert rig.found == FoundLog(LOG, document())


def test_a_process_that_stood_still_for_long_does_not_wait_for_ever(rig: Rig) -> None:
    rig.stand_still(60_000)
    rig.answer("ab", LogSilence(1, LIMITS.silence_ms + LIMITS.late_ms_max - 1))
    assert rig.found is None
    rig.step(LIMITS.again_ms)
    rig.answer("ab", LogSilence(1, LIMITS.silence_ms + LIMITS.late_ms_max))
    assert rig.found == FoundLog(LOG, document())
