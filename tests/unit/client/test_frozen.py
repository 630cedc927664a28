"""Tables that are frozen, or mounted in part: what may be read and written, and what is said."""

from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, Target
from dodona.errors import TableNotMounted
from dodona.types import Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import LookupReply, Prepared
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    MOVED,
    PATH,
    Clock,
    Play,
    new_session,
    play,
    table,
    tablet,
    with_rows,
)

FROZEN = table((tablet(10, 0, None, state="frozen"), tablet(11, 1, 100, state="frozen")))
REFUSED = Failure(
    "table_not_mounted", "it is frozen", {"table": PATH, "tablet": 10, "state": "frozen"}
)


@pytest.mark.parametrize("state", ["mounted", "freezing", "frozen", "unfreezing"])
def test_a_table_can_be_read_in_this_state(state: str) -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None, state=state),)))
    found = play(
        clock,
        session.lookup_rows(PATH, [{"id": 1}], timestamp=Timestamp(9)),
        lambda target, body: LookupReply((None,)),
    )
    assert found == []


@pytest.mark.parametrize("state", ["freezing", "frozen", "unmounting", "frozen_mounting"])
def test_a_refused_commit_names_the_state_of_the_tablet(state: str) -> None:
    clock = Clock()
    closed = table((tablet(10, 0, None, state=state),))
    session = new_session(clock, closed)
    transaction = with_rows(clock, session, 1)
    with pytest.raises(TableNotMounted, match=f'Tablet 10 of table {PATH} is in "{state}"') as it:
        play(clock, session.commit(transaction), lambda target, body: closed)
    waited_for = {} if state == "frozen" else {"cell": 0}  # it is on its way, and who brings it
    assert it.value.attributes == {"table": PATH, "tablet": 10, "state": state, **waited_for}
    assert not it.value.is_retryable


@pytest.mark.parametrize("state", ["unmounted", "unmounting"])
def test_a_refused_read_names_the_state_of_the_tablet(state: str) -> None:
    clock = Clock()
    closed = table((tablet(10, 0, None, state=state),))
    session = new_session(clock, closed)
    text = f'Cannot read from tablet 10 of table {PATH} while it is in "{state}" state'
    with pytest.raises(TableNotMounted, match=text):
        play(clock, session.lookup_rows(PATH, [{"id": 1}]), lambda target, body: closed)


def test_a_table_that_is_being_unfrozen_is_waited_for() -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None, state="unfreezing"),)))
    commit = Play(clock, session.commit(with_rows(clock, session, 1)))
    commit.wait()
    commit.answer(table((tablet(10, 0, None, state="unfreezing"),)))
    commit.wait()
    commit.answer(table((tablet(10, 0, None),)))
    assert commit.call[0] == 0


def test_other_tablets_that_are_mounted_do_not_keep_a_writer_waiting() -> None:
    clock = Clock()
    half = table((tablet(10, None, None, state="unmounted"), tablet(11, 1, 100)))
    session = new_session(clock, half)
    began_us = clock.now_us
    transaction = with_rows(clock, session, 1)
    with pytest.raises(TableNotMounted):
        play(clock, session.commit(transaction), lambda target, body: half)
    assert clock.now_us - began_us < 1_000_000


def test_a_commit_aborts_when_a_cell_reports_that_its_tablet_is_frozen() -> None:
    """The cell remembers the refusal, so that a late copy of the request does nothing either."""
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None),)))
    transaction = with_rows(clock, session, 1)
    commit = Play(clock, session.commit(transaction))
    with pytest.raises(TableNotMounted) as it:
        commit.answer(REFUSED)
    assert it.value.attributes["state"] == "frozen"
    assert transaction.is_aborted
    assert session.routing.find(PATH) is None


def test_one_frozen_tablet_aborts_a_commit_of_several_cells() -> None:
    clock = Clock()
    session = new_session(clock, table())
    commit = Play(clock, session.commit(with_rows(clock, session, 1, 100)))
    commit.answer(REFUSED, Prepared(TransactionId(50), Timestamp(60)))
    with pytest.raises(TableNotMounted) as it:
        commit.posted()
    assert it.value.attributes["state"] == "frozen"
    assert session.routing.find(PATH) is None


def test_a_lookup_finds_the_new_tablets_after_a_reshard() -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None, state="unmounted"),)))
    asked: list[Any] = []

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table((tablet(20, 0, None), tablet(21, 1, 100)))
        asked.append((target, body))
        return MOVED if len(asked) == 1 else LookupReply((None,))

    assert (
        play(clock, session.lookup_rows(PATH, [{"id": 100}], timestamp=Timestamp(9)), answer) == []
    )
    assert [target for target, _ in asked] == [1, 1]


def test_a_commit_to_a_frozen_table_sends_no_request_to_a_cell() -> None:
    clock = Clock()
    session = new_session(clock, FROZEN)
    transaction = with_rows(clock, session, 1)
    commit = Play(clock, session.commit(transaction))
    commit.wait()
    assert commit.call[0] == MASTER
    with pytest.raises(TableNotMounted):
        commit.answer(FROZEN)
