"""Flat combining by itself: who serves whom, and what a failure of serving means for each."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dodona.errors import DataCorrupted, Unavailable
from dodona.types import Timestamp, TransactionId
from dodona_local import embedded_combiner
from dodona_local.embedded_combiner import Combiner
from dodona_local.embedded_cores import Asked
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import AskOutcome, Committed
from dodona_wire.messages.families import Reply, Request
from dodona_wire.net import threads
from suite.waiting import WAIT_S_MAX, wait_until


class FakeCores:
    """Answers each question with its number, after `hook` was called with all of them. Questions
    from 1,000 up need a flush, for which `flush_hook` is called with all that wait for it."""

    def __init__(
        self,
        hook: Callable[[list[int]], None] = lambda numbers: None,
        flush_hook: Callable[[list[int]], None] = lambda numbers: None,
    ) -> None:
        self.hook = hook
        self.flush_hook = flush_hook
        self.groups: list[list[int]] = []
        self.flushes: list[list[int]] = []
        self.is_closed = False
        self._gathering: list[tuple[int, Callable[[Reply], None]]] = []
        self._in_flight: list[tuple[int, Callable[[Reply], None]]] | None = None

    def serve(self, requests: Sequence[Asked]) -> None:
        assert not self.is_closed
        numbers = [int(body.transaction) for _, body, _ in requests if type(body) is AskOutcome]
        self.groups.append(numbers)
        self.hook(numbers)
        for number, (_, _, deliver) in zip(numbers, requests, strict=True):
            if number >= 1_000:
                self._gathering.append((number, deliver))
            else:
                deliver(answer_to(number))

    @property
    def is_flush_due(self) -> bool:
        return bool(self._gathering) and self._in_flight is None

    def begin_flush(self) -> bool:
        if not self.is_flush_due:
            return False
        self._in_flight, self._gathering = self._gathering, []
        return True

    def flush(self) -> None:
        assert not self.is_closed
        assert self._in_flight is not None
        self.flushes.append([number for number, _ in self._in_flight])
        self.flush_hook(self.flushes[-1])
        assert not self.is_closed, "closed while it was flushing"

    def end_flush(self) -> None:
        assert self._in_flight is not None
        for number, deliver in self._in_flight:
            deliver(answer_to(number))
        self._in_flight = None

    def close(self) -> None:
        self.is_closed = True


def answer_to(number: int) -> Committed:
    return Committed(TransactionId(number), Timestamp(number))


def question(*numbers: int) -> tuple[tuple[int, Request], ...]:
    return tuple([(0, AskOutcome(TransactionId(it))) for it in numbers])


def combiner(*cores: Any) -> Combiner:
    """One that opens these cores, one after the other; an error among them is raised."""
    left = list(cores)

    def open_next() -> Any:
        it = left.pop(0)
        if isinstance(it, Exception):
            raise it
        return it

    return Combiner(open_next)


def in_threads(it: Combiner, count: int, first: int = 1) -> tuple[list[Any], list[list[Reply]]]:
    """Ask from so many threads at once. → the threads, and the list that their replies go to."""
    replies: list[list[Reply]] = []
    threads = [
        threading.Thread(target=lambda at=at: replies.append(it.exchange(question(at))))
        for at in range(first, first + count)
    ]
    for thread in threads:
        thread.start()
    return threads, replies


def join(threads: list[Any]) -> None:
    for thread in threads:
        thread.join(WAIT_S_MAX)
        assert not thread.is_alive()


def test_a_lone_thread_serves_itself() -> None:
    cores = FakeCores()
    assert combiner(cores).exchange(question(3, 4)) == [answer_to(3), answer_to(4)]
    assert cores.groups == [[3, 4]]


def test_calls_that_arrive_while_one_is_served_are_served_together() -> None:
    is_serving, may_end = threading.Event(), threading.Event()

    def block(numbers: list[int]) -> None:
        if numbers == [100]:
            is_serving.set()
            assert may_end.wait(WAIT_S_MAX)

    cores = FakeCores(block)
    it = combiner(cores)
    first, _ = in_threads(it, 1, 100)
    assert is_serving.wait(WAIT_S_MAX)
    others, replies = in_threads(it, 10)
    wait_until(lambda: len(it._queue) == 10)
    may_end.set()
    join([*first, *others])
    assert len(replies) == 10
    assert cores.groups[0] == [100]
    assert sorted(cores.groups[1]) == list(range(1, 11))


def test_all_calls_of_many_threads_get_their_answers() -> None:
    def work(number: int) -> None:
        for step in range(200):
            at = (number * 1_000 if step % 3 else 0) + step
            assert it.exchange(question(at)) == [answer_to(at)]

    it = combiner(FakeCores(flush_hook=lambda numbers: time.sleep(0.0001)))
    failures: list[Any] = []
    hook, threading.excepthook = threading.excepthook, failures.append
    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    join(threads)
    threading.excepthook = hook
    assert failures == []


def test_others_are_served_while_one_flushes_and_share_the_next_flush() -> None:
    is_flushing, may_end = threading.Event(), threading.Event()

    def block(numbers: list[int]) -> None:
        if numbers == [1_000]:
            is_flushing.set()
            assert may_end.wait(WAIT_S_MAX)

    cores = FakeCores(flush_hook=block)
    it = combiner(cores)
    first, first_replies = in_threads(it, 1, 1_000)
    assert is_flushing.wait(WAIT_S_MAX)
    assert it.exchange(question(7)) == [answer_to(7)]
    others, replies = in_threads(it, 5, 2_000)
    wait_until(lambda: sum(map(len, cores.groups)) == 7)
    assert first_replies == replies == []
    may_end.set()
    join([*first, *others])
    assert len(replies) == 5
    assert [sorted(group) for group in cores.flushes] == [[1_000], list(range(2_000, 2_005))]


@pytest.mark.parametrize("error", [AssertionError("surprise"), OSError("the disk")])
def test_a_failed_flush_ends_all_waiting_calls_with_an_error(error: Exception) -> None:
    is_flushing, may_fail = threading.Event(), threading.Event()

    def fail(numbers: list[int]) -> None:
        is_flushing.set()
        assert may_fail.wait(WAIT_S_MAX)
        raise error

    broken, fresh = FakeCores(flush_hook=fail), FakeCores()
    it = combiner(broken, fresh)
    threads, replies = in_threads(it, 1, 1_000)
    assert is_flushing.wait(WAIT_S_MAX)
    others, other_replies = in_threads(it, 2, 2_000)
    wait_until(lambda: sum(map(len, broken.groups)) == 3)
    may_fail.set()
    join([*threads, *others])
    failures = [reply for (reply,) in [*replies, *other_replies]]
    assert [reply.kind for reply in failures if isinstance(reply, Failure)] == ["unavailable"] * 3
    assert broken.is_closed
    assert it.exchange(question(3_000)) == [answer_to(3_000)]


def test_stores_are_not_closed_under_a_flush() -> None:
    is_flushing, may_end = threading.Event(), threading.Event()

    def block(numbers: list[int]) -> None:
        is_flushing.set()
        assert may_end.wait(WAIT_S_MAX)

    cores = FakeCores(flush_hook=block)
    it = combiner(cores)
    threads, replies = in_threads(it, 1, 1_000)
    assert is_flushing.wait(WAIT_S_MAX)
    closing = threading.Thread(target=it.close)
    closing.start()
    wait_until(lambda: it._is_closed)
    # Whether it waits shows only if it is given time not to: a machine that is slow sees less.
    time.sleep(0.05)
    assert not cores.is_closed
    may_end.set()
    join([*threads, closing])
    assert cores.is_closed
    assert replies == [[answer_to(1_000)]]  # it was flushed before the end


def test_an_answer_that_takes_time_is_waited_for() -> None:
    class Slow(FakeCores):
        """Answers at the third call, as a core does whose tick brings the answer about."""

        waiting: Sequence[Asked] = ()

        def serve(self, requests: Sequence[Asked]) -> None:
            self.groups.append([])
            self.waiting = [*self.waiting, *requests]
            if len(self.groups) == 3:
                super().serve(self.waiting)

    assert combiner(Slow()).exchange(question(7)) == [answer_to(7)]


@pytest.mark.parametrize("error", [AssertionError("surprise"), OSError("the disk")])
def test_a_failure_ends_those_being_served_and_the_next_one_recovers(error: Exception) -> None:
    def fail(numbers: list[int]) -> None:
        raise error

    broken, fresh = FakeCores(fail), FakeCores()
    it = combiner(broken, fresh)
    (reply,) = it.exchange(question(1))
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"
    assert str(error) in reply.message
    assert broken.is_closed
    assert it.exchange(question(2)) == [answer_to(2)]
    assert fresh.groups == [[2]]


def test_a_recovery_that_finds_no_thread_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error of the caller's, who took it for the outcome of what is done already."""
    begin, refused = threads.begin_thread_soon, [Unavailable("no thread")]

    def begin_late(work: Callable[[], None], name: str) -> None:
        if refused:
            raise refused.pop()
        begin(work, name)

    def fail(_: list[int]) -> None:
        raise OSError("planted")

    monkeypatch.setattr(embedded_combiner, "begin_thread_soon", begin_late)
    it = combiner(FakeCores(fail), FakeCores())
    (reply,) = it.exchange(question(1))
    assert isinstance(reply, Failure)
    assert not refused
    assert it.exchange(question(2)) == [answer_to(2)]


def test_an_interrupt_reaches_its_caller_and_other_calls_are_served() -> None:
    is_queued = threading.Event()

    def interrupt(numbers: list[int]) -> None:
        is_queued.set()
        wait_until(lambda: len(it._queue) == 1)
        it_was.append(numbers)
        raise KeyboardInterrupt

    it_was: list[list[int]] = []
    it = combiner(FakeCores(interrupt), FakeCores())
    others: list[Any] = []

    def come_later() -> None:
        assert is_queued.wait(WAIT_S_MAX)
        others.append(it.exchange(question(2)))

    thread = threading.Thread(target=come_later)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        it.exchange(question(1))
    join([thread])
    assert it_was == [[1]]
    assert others == [[answer_to(2)]]


def test_a_recovery_that_fails_is_named_and_tried_again() -> None:
    def fail(numbers: list[int]) -> None:
        raise OSError("the disk")

    it = combiner(FakeCores(fail), DataCorrupted("damaged", where="here"), FakeCores())
    it.exchange(question(1))
    (reply,) = it.exchange(question(2))
    assert reply == Failure("data_corrupted", "damaged", {"where": "here"})
    assert it.exchange(question(3)) == [answer_to(3)]


def test_closing_answers_waiting_calls_and_refuses_new_calls() -> None:
    is_serving, may_end = threading.Event(), threading.Event()

    def block(numbers: list[int]) -> None:
        is_serving.set()
        assert may_end.wait(WAIT_S_MAX)

    cores = FakeCores(block)
    it = combiner(cores)
    threads, replies = in_threads(it, 1)
    assert is_serving.wait(WAIT_S_MAX)
    closing = threading.Thread(target=it.close)
    closing.start()
    may_end.set()
    join([*threads, closing])
    assert replies == [[answer_to(1)]]
    assert cores.is_closed
    (reply,) = it.exchange(question(2))
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.message) == ("invalid_request", "the client is closed")
    it.close()
