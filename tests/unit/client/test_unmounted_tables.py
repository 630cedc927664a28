"""Commits to tables that are not served: waited for where that passes, else named."""

import pytest

from dodona._core.protocol.steps import MASTER
from dodona.errors import TableNotMounted
from dodona_wire.messages.catalog import GetTable
from unit.client.protocols import (
    PATH,
    Clock,
    Play,
    new_session,
    table,
    tablet,
    tablets_of,
    with_rows,
)


def test_a_commit_to_an_unmounted_table_fails_after_one_route_request() -> None:
    clock = Clock()
    unmounted = table((tablet(10, 0, None, state="unmounted"),))
    session = new_session(clock, unmounted)
    transaction = with_rows(clock, session, 1)
    commit = Play(clock, session.commit(transaction))
    commit.wait()  # what was known of the table may have been stale
    assert commit.call == (MASTER, GetTable(PATH))
    with pytest.raises(TableNotMounted, match=PATH):
        commit.answer(unmounted)
    assert transaction.is_aborted


def test_a_table_about_to_be_mounted_is_waited_for() -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None, state="mounting"),)))
    commit = Play(clock, session.commit(with_rows(clock, session, 1)))
    commit.wait()
    commit.answer(table((tablet(10, 0, None, state="mounting", revision=2),)))
    commit.wait()
    commit.answer(table((tablet(10, 0, None, revision=2),)))
    assert tablets_of(commit.call[1]) == [10]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("mounting", 'is in "mounting" state: the master waits for cell 3'),
        ("unmounting", 'is in "unmounting" state: the master waits for cell 3'),
        ("frozen", 'is in "frozen" state. Mount or unfreeze the table.'),
    ],
)
def test_a_failed_commit_names_the_state_of_the_tablet(state: str, told: str) -> None:
    clock = Clock()
    stuck = table((tablet(10, 3, None, state=state),))
    session = new_session(clock, stuck)
    commit = Play(clock, session.commit(with_rows(clock, session, 1)))

    def wait_and_answer() -> None:
        for _ in range(1_000):
            commit.wait()
            commit.answer(stuck)

    with pytest.raises(TableNotMounted) as caught:
        wait_and_answer()
    assert caught.value.message == f"Tablet 10 of table {PATH} {told}"
    assert caught.value.attributes.get("cell") == (None if state == "frozen" else 3)
