"""Work that an event loop does for a thread: who does what, how much at a time, and how it ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from dodona_tablets.shell import turns
from dodona_tablets.shell.turns import AHEAD_MAX, TURN_MS_MAX, GivenUp, Turns
from suite.waiting import WAIT_S_MAX, until

pytestmark = pytest.mark.anyio


def taken(made: Turns[int]) -> list[int]:
    return list(made)


async def test_items_arrive_in_order_and_the_loop_makes_them() -> None:
    makers: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(100):
            makers.add(threading.get_ident())
            yield number

    made = Turns(asyncio.get_running_loop(), items())
    assert await asyncio.to_thread(taken, made) == [*range(100)]
    assert makers == {threading.get_ident()}


async def test_nothing_is_no_item() -> None:
    assert await asyncio.to_thread(taken, Turns(asyncio.get_running_loop(), ())) == []


async def test_an_error_is_raised_after_the_items_made_before_the_error() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second one")

    found: list[int] = []

    def take() -> None:
        found.extend(Turns(loop, items()))

    loop = asyncio.get_running_loop()
    with pytest.raises(ValueError, match="no second one"):
        await asyncio.to_thread(take)
    assert found == [1]


class Counted:
    """Numbers without an end, which knows how many were made."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.count += 1
            yield self.count


async def test_a_slow_consumer_limits_how_far_the_producer_is_ahead() -> None:
    items = Counted()
    one_by_one = iter(Turns(asyncio.get_running_loop(), items))
    for number in range(1, 20):
        assert await asyncio.to_thread(next, one_by_one) == number
        await until(lambda: items.count > number)  # noqa: B023
        await asyncio.sleep(0.01)  # so that it makes as many as it may
        assert items.count <= number + AHEAD_MAX


async def test_cancelling_raises_an_error_in_the_consumer_and_stops_the_producer() -> None:
    items = Counted()
    made = Turns(asyncio.get_running_loop(), items)
    one_by_one = iter(made)
    await asyncio.to_thread(next, one_by_one)
    made.give_up()

    def take_all() -> None:
        for _ in range(2 * AHEAD_MAX):
            next(one_by_one)

    with pytest.raises(GivenUp):
        await asyncio.to_thread(take_all)
    count = items.count
    await asyncio.sleep(0.02)
    assert items.count == count


async def test_a_consumer_that_stops_also_stops_the_producer() -> None:
    items = Counted()
    one_by_one = iter(Turns(asyncio.get_running_loop(), items))
    await asyncio.to_thread(next, one_by_one)
    await asyncio.to_thread(one_by_one.close)  # type: ignore[attr-defined]
    await asyncio.sleep(0.02)
    count = items.count
    await asyncio.sleep(0.02)
    assert items.count == count <= 1 + AHEAD_MAX


def test_cancelling_ends_a_consumer_of_a_closed_loop() -> None:
    loop = asyncio.new_event_loop()
    made = Turns(loop, [1, 2])
    loop.close()
    ended: list[type[BaseException]] = []

    def take() -> None:
        try:
            list(made)
        except GivenUp as error:
            ended.append(type(error))

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.01)
    assert thread.is_alive()
    made.give_up()
    thread.join(WAIT_S_MAX)
    assert ended == [GivenUp]


class Scene:
    """Turns by a clock that only making and other work move, over a loop that only notes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_ms: float) -> None:
        self.now_s = 0.0
        self.made_count = 0
        self.next: list[object] = []
        monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(turns, "AHEAD_MAX", 1_000)
        self._step_ms = step_ms
        loop = SimpleNamespace(call_soon=self.next.append, call_soon_threadsafe=self.next.append)
        self.turns = Turns(loop, self._items())  # type: ignore[arg-type]

    def _items(self) -> Iterator[int]:
        while True:
            self.now_s += self._step_ms / 1000
            self.made_count += 1
            yield self.made_count

    def turn_after(self, other_ms: float) -> int:
        """→ how many items one turn makes that comes after so much other work."""
        count = self._made_by(self.turns._turn, other_ms)
        (again,) = self.next
        assert again == self.turns._turn  # it goes on, behind whatever else there is
        self.next.clear()
        return count

    def taken_after(self, other_ms: float) -> int:
        """→ how many are made because one was taken, behind so much other work."""
        return self._made_by(self.turns._count_taken, other_ms)

    def _made_by(self, callback: Callable[[], None], other_ms: float) -> int:
        self.now_s += other_ms / 1000
        before = self.made_count
        callback()
        return self.made_count - before


@pytest.mark.parametrize(
    ("other_ms", "count"), [(0, 1), (0.4, 1), (1.1, 3), (2.1, 5), (2.9, 7), (50, 7), (5_000, 7)]
)
def test_a_turn_takes_as_long_as_other_work_of_the_loop_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, other_ms: float, count: int
) -> None:
    """Of steps of 0.45 ms."""
    assert TURN_MS_MAX == 3
    scene = Scene(monkeypatch, 0.45)
    assert scene.turn_after(0) == 1
    assert scene.turn_after(other_ms) == count
    assert scene.turn_after(0) == 1  # what was done for it is no reason for more


def test_a_producer_that_was_held_up_gets_no_longer_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, 0.45)
    monkeypatch.setattr(turns, "AHEAD_MAX", 3)
    scene.turns._turn()
    scene.next.clear()
    assert scene._made_by(scene.turns._turn, 50) == 2
    assert scene.next == []  # until the thread has taken one
    assert scene.taken_after(0) == 1
    assert scene.next == []
    scene.turns._ahead_count = 1
    assert scene.taken_after(0.2) == 1  # there is room for two more, but not the time
    assert scene.next == [scene.turns._turn]
