"""What happens between two attempts of an operation, for every operation that has attempts."""

from collections.abc import Callable

import pytest

from dodona._core.protocol.attempts import Again, repeated, with_route
from dodona._core.protocol.context import Context
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Pause, Protocol
from dodona.errors import InvalidRequest, Overloaded, TableNotMounted, Unavailable
from unit.client.protocols import (
    COLUMNS,
    LOST,
    PATH,
    Clock,
    Play,
    new_session,
    nobody,
    play,
    table,
    tablet,
    unchanged,
)

SILENT = Unavailable("no answer")


def known_route(context: Context) -> TableRoute:
    route = context.routing.find(PATH)
    assert route is not None
    return route


def failing(again: Again, seen: list[Patience | None]) -> Callable[..., Protocol[Again | int]]:
    """An attempt that fails once."""

    def attempt(patience: Patience | None) -> Protocol[Again | int]:
        seen.append(patience)
        yield Pause(1)
        return again if len(seen) == 1 else len(seen)

    return attempt


def test_an_attempt_is_repeated_after_a_pause_with_limits_from_its_first_failure_on() -> None:
    clock, seen = Clock(), list[Patience | None]()
    context = new_session(clock, table())._context
    route = known_route(context)
    playing = Play(clock, repeated(context, failing(Again(SILENT, [route]), seen)))
    assert seen == [None]
    assert not route.is_stale
    playing.wait()
    assert route.is_stale
    assert context.routing.find(PATH) is None
    for _ in range(2):
        playing.wait()
    assert playing.result == 2
    first, second = seen
    assert (first, second and second.remaining_ms > 0) == (None, True)


def test_the_last_error_is_raised_once_no_attempt_is_left() -> None:
    clock, seen = Clock(), list[Patience | None]()
    context = new_session(clock)._context

    def attempt(patience: Patience | None) -> Protocol[Again]:
        seen.append(patience)
        return Again(Unavailable(f"attempt {len(seen)}"))
        yield

    with pytest.raises(Unavailable) as caught:
        play(clock, repeated(context, attempt), nobody)
    assert caught.value.message == f"attempt {len(seen)}"
    assert 10 < len(seen) <= context.limits.attempts_max + 1
    assert len({*seen}) == 2, "all retries have the same limits"


@pytest.mark.parametrize("is_full", [False, True])
def test_full_cells_get_more_time(is_full: bool) -> None:
    clock, began_us = Clock(), Clock().now_us
    context = new_session(clock)._context

    def attempt(_: Patience | None) -> Protocol[Again]:
        return Again(Overloaded("full"), is_full=is_full)
        yield

    with pytest.raises(Overloaded):
        play(clock, repeated(context, attempt), nobody)
    limit_ms = context.limits.bulk_wait_ms_max if is_full else context.limits.retry_ms_max
    assert (clock.now_us - began_us) // 1000 == limit_ms


@pytest.mark.parametrize(("state", "is_final"), [("unmounted", True), ("mounting", False)])
def test_a_tablet_that_no_cell_will_serve_ends_the_attempts(state: str, is_final: bool) -> None:
    clock, seen = Clock(), list[Patience | None]()
    context = new_session(clock, table())._context
    error = TableNotMounted("not here", tablet=10)
    again = Again(error, [known_route(context)])
    playing = Play(clock, repeated(context, failing(again, seen)))
    for _ in range(2):
        playing.wait()
    by_now = table((tablet(10, None, None, state=state),))
    if is_final:
        with pytest.raises(TableNotMounted, match=f'while it is in "{state}" state'):
            playing.answer(by_now)
    else:
        playing.answer(by_now)
        assert len(seen) == 2


def test_a_refusal_is_final_if_the_table_is_what_it_was_or_the_master_is_silent() -> None:
    clock, seen = Clock(), list[TableRoute]()
    context = new_session(clock, table())._context

    def refuse(route: TableRoute) -> int:
        seen.append(route)
        if len(seen) < 3:
            raise InvalidRequest("no such column")
        return len(seen)

    for reply in (table(), LOST):
        seen.clear()
        with pytest.raises(InvalidRequest, match="no such column"):
            play(clock, with_route(context, PATH, refuse), lambda *_, it=reply: it)
    seen.clear()
    playing = Play(clock, with_route(context, PATH, refuse))
    playing.answer(table(columns=COLUMNS[:2]))
    assert [len(it.schema.columns) for it in seen] == [3, 2]
    playing.answer(table())
    assert playing.result == 3


def test_a_function_that_accepts_the_known_route_asks_nobody() -> None:
    clock = Clock()
    context = new_session(clock, table())._context
    assert play(clock, with_route(context, PATH, lambda it: it.path), nobody) == PATH
    context.routing.forget(PATH)
    found = with_route(context, PATH, lambda it: it.path)
    assert play(clock, found, unchanged(table())) == PATH
