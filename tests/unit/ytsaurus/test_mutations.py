"""Commands that come again: carried out once, answered alike, forgotten in time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    NodeExists,
    NodeLocked,
    Overloaded,
    Unavailable,
)
from dodona_ytsaurus.commands import mutations
from dodona_ytsaurus.commands.mutations import (
    ANSWER_BYTES_MAX,
    REMEMBERED_BYTES_MAX,
    REMEMBERED_MAX,
    REMEMBERED_SECONDS,
    Mutations,
)

pytestmark = pytest.mark.anyio


class Change:
    """Counts how often it is carried out; fails or waits if told to."""

    def __init__(self, error: DodonaError | None = None, answer: bytes | None = None) -> None:
        self.count = 0
        self.error = error
        self.answer = answer
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def __call__(self) -> bytes:
        self.count += 1
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return b"%d" % self.count if self.answer is None else self.answer


async def fails(asking: Awaitable[bytes]) -> DodonaError:
    with pytest.raises(DodonaError) as refused:
        await asking
    return refused.value


async def test_a_repetition_is_answered_as_the_first_was() -> None:
    known, change = Mutations(), Change()
    assert [await known.once(("a", "c", "1"), change) for _ in range(3)] == [b"1"] * 3
    assert change.count == 1


async def test_caller_command_and_id_together_identify_a_mutation() -> None:
    known, change = Mutations(), Change()
    keys = [("a", "c", "1"), ("b", "c", "1"), ("a", "d", "1"), ("a", "c", "2")]
    assert [await known.once(key, change) for key in keys] == [b"1", b"2", b"3", b"4"]


async def test_one_that_is_under_way_is_not_begun_again() -> None:
    known, change = Mutations(), Change()
    change.is_open.clear()
    asked = [asyncio.create_task(known.once(("a", "c", "1"), change)) for _ in range(10)]
    await asyncio.sleep(0)
    change.is_open.set()
    assert await asyncio.gather(*asked) == [b"1"] * 10
    assert change.count == 1


async def test_a_mutation_continues_after_its_caller_is_cancelled() -> None:
    known, change = Mutations(), Change()
    change.is_open.clear()
    asked = asyncio.create_task(known.once(("a", "c", "1"), change))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    change.is_open.set()
    assert await known.once(("a", "c", "1"), change) == b"1"
    assert change.count == 1


async def test_a_failed_mutation_without_a_caller_leaves_no_unretrieved_exception() -> None:
    """An unretrieved exception would be an error of the test run."""
    known, change = Mutations(), Change(NodeExists("x"))
    change.is_open.clear()
    asked = asyncio.create_task(known.once(("a", "c", "1"), change))
    await asyncio.sleep(0)
    asked.cancel()
    change.is_open.set()
    await asyncio.sleep(0.01)
    assert (await fails(known.once(("a", "c", "1"), change))).message == "x"
    assert change.count == 1


async def test_an_error_is_an_answer() -> None:
    known, change = Mutations(), Change(NodeExists("x", path="//a"))
    first = await fails(known.once(("a", "c", "1"), change))
    again = [await fails(known.once(("a", "c", "1"), change)) for _ in range(2)]
    assert change.count == 1
    for error in again:
        assert type(error) is NodeExists
        assert (error.message, error.attributes) == ("x", {"path": "//a"})
        assert error is not first
        assert error.__cause__ is error.__context__ is None
    assert again[0] is not again[1]


@pytest.mark.parametrize("kind", [Unavailable, Overloaded, NodeLocked, CommitOutcomeUnknown])
async def test_a_retryable_error_of_a_mutation_is_not_remembered(kind: type[DodonaError]) -> None:
    known, change = Mutations(), Change(kind("not now"))
    await fails(known.once(("a", "c", "1"), change))
    await fails(known.once(("a", "c", "1"), change))
    change.error = None
    assert await known.once(("a", "c", "1"), change) == b"3"
    assert await known.once(("a", "c", "1"), change) == b"3"


async def test_a_surprise_is_not_remembered() -> None:
    known = Mutations()

    async def surprise() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await known.once(("a", "c", "1"), surprise)
    assert await known.once(("a", "c", "1"), Change()) == b"1"


async def test_an_old_mutation_is_forgotten() -> None:
    now = [0.0]
    known, change = Mutations(lambda: now[0]), Change()
    await known.once(("a", "c", "1"), change)
    now[0] = REMEMBERED_SECONDS - 1
    assert await known.once(("a", "c", "1"), change) == b"1"
    now[0] = REMEMBERED_SECONDS
    assert await known.once(("a", "c", "1"), change) == b"2"
    now[0] = 10 * REMEMBERED_SECONDS
    await known.once(("a", "c", "2"), change)
    assert len(known._ended) == 1


async def test_one_that_takes_long_does_not_keep_others_from_being_forgotten() -> None:
    now = [0.0]
    known, slow, change = Mutations(lambda: now[0]), Change(), Change()
    slow.is_open.clear()
    asked = asyncio.create_task(known.once(("a", "c", "slow"), slow))
    await asyncio.sleep(0)
    await known.once(("a", "c", "1"), change)
    now[0] = REMEMBERED_SECONDS
    await known.once(("a", "c", "2"), change)
    assert list(known._ended) == [("a", "c", "2")]
    slow.is_open.set()
    assert await asked == b"1"


async def run_many(known: Mutations, count: int, change: Callable[[], Awaitable[bytes]]) -> None:
    for it in range(count):
        await known.once(("a", "c", str(it)), change)


async def test_the_number_is_bounded() -> None:
    known, change = Mutations(), Change()
    await run_many(known, REMEMBERED_MAX + 5, change)
    assert len(known._ended) == REMEMBERED_MAX
    assert ("a", "c", "4") not in known._ended
    assert ("a", "c", "5") in known._ended


async def test_the_size_is_bounded() -> None:
    known = Mutations()
    await run_many(known, 200, Change(answer=bytes(ANSWER_BYTES_MAX)))
    assert len(known._ended) == REMEMBERED_BYTES_MAX // ANSWER_BYTES_MAX
    assert known._size_bytes == REMEMBERED_BYTES_MAX
    long = Change(answer=bytes(ANSWER_BYTES_MAX + 1))
    await known.once(("b", "c", "1"), long)
    await known.once(("b", "c", "1"), long)
    assert long.count == 2


async def test_the_number_of_running_mutations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "UNDER_WAY_MAX", 2)
    known, change = Mutations(), Change()
    change.is_open.clear()
    asked = [asyncio.create_task(known.once(("a", "c", str(it)), change)) for it in (1, 2, 2, 1)]
    await asyncio.sleep(0)
    assert isinstance(await fails(known.once(("a", "c", "3"), change)), Overloaded)
    change.is_open.set()
    assert await asyncio.gather(*asked) == [b"1", b"2", b"2", b"1"]
    assert await known.once(("a", "c", "3"), change) == b"3"
