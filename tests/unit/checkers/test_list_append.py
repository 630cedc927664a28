"""The list-append checker on histories made by hand: each anomaly is named and told as a cycle.

What is allowed under snapshot isolation passes, and is refused where all is to be serializable.
"""

from collections.abc import Hashable

import pytest

from dodona_loadtest.checkers.appends import Append, AppendTransaction, Observe
from dodona_loadtest.checkers.list_append import check_appends
from dodona_loadtest.checkers.list_append_cycles import Order
from dodona_loadtest.checkers.violation import Promise
from dodona_loadtest.histories.history import Status


def saw(key: Hashable, *elements: Hashable) -> Observe:
    return Observe(key, elements)


class Story:
    """A history in the making. What is told without instants happened all at the same time."""

    def __init__(self) -> None:
        self.transactions: list[AppendTransaction] = []

    def tell(
        self,
        name: str,
        *operations: Append | Observe,
        status: Status = "ok",
        session: str = "",
        us: tuple[int, int | None] = (0, 100),
    ) -> None:
        begin_us, end_us = us
        self.transactions.append(
            AppendTransaction(name, session or name, status, begin_us, end_us, operations)
        )

    def violations(self, order: Order = "real time", *, is_serializable: bool = False) -> list[str]:
        found = check_appends(self.transactions, order=order, is_serializable=is_serializable)
        return [str(violation) for violation in found]

    def promises(
        self, order: Order = "real time", *, is_serializable: bool = False
    ) -> set[Promise]:
        found = check_appends(self.transactions, order=order, is_serializable=is_serializable)
        return {violation.promise for violation in found}


@pytest.fixture
def story() -> Story:
    return Story()


# What is allowed


def test_no_history_breaks_nothing(story: Story) -> None:
    assert story.violations() == []


def test_a_clean_history_passes(story: Story) -> None:
    story.tell("t", saw("x"), saw("y"), Append("x", 1), Append("y", 1), us=(0, 1))
    story.tell("u", saw("x", 1), Append("x", 2), us=(2, 3))
    story.tell("v", saw("x", 1, 2), saw("y", 1), saw("z"), us=(4, 5))
    story.tell("w", saw("x", 1), Append("x", 3), us=(2, 6), status="fail")
    assert story.violations(is_serializable=True) == []


def test_several_elements_of_one_transaction_pass(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("x", 2))
    story.tell("u", saw("x", 1, 2))
    story.tell("v", saw("x"))
    assert story.violations(is_serializable=True) == []


def test_write_skew_is_allowed_unless_all_is_serializable(story: Story) -> None:
    story.tell("t", saw("x"), saw("y"), Append("x", 1))
    story.tell("u", saw("x"), saw("y"), Append("y", 2))
    story.tell("v", saw("x", 1), saw("y", 2))
    assert story.violations() == []
    assert story.violations(is_serializable=True) == [
        "G2: t → rw y: empty, 2 → u → rw x: empty, 1 → t"
    ]


def test_the_anomaly_of_a_reader_is_allowed_unless_all_is_serializable(story: Story) -> None:
    """Fekete: without the reader, u before t is a serial order; it sees t, but not yet u."""
    story.tell("t", saw("y"), Append("y", 20), us=(10, 20))
    story.tell("reader", saw("x"), saw("y", 20), us=(30, 40))
    story.tell("u", saw("x"), saw("y"), Append("x", -11), us=(0, 50))
    story.tell("end", saw("x", -11), saw("y", 20), us=(60, 70))
    assert story.violations() == []
    assert story.promises(is_serializable=True) == {"G2"}
    del story.transactions[1]
    assert story.violations(is_serializable=True) == []


def test_concurrent_readers_may_see_before_and_after(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x", 1), us=(5, 6))
    story.tell("v", saw("x"), us=(7, 12))
    assert story.promises() == {"REAL-TIME"}
    story.transactions.pop()
    story.tell("v", saw("x"), us=(6, 12))
    assert story.violations() == []


def test_an_append_without_a_later_read_is_not_lost(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x"), us=(10, 12))
    story.tell("v", saw("y"), us=(20, 30))
    assert story.violations() == []


# One list


def test_two_lists_that_do_not_fit(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", Append("x", 2))
    story.tell("v", saw("x", 1, 2))
    story.tell("w", saw("x", 2))
    assert story.violations() == ["INCOMPATIBLE-ORDER: w saw x as (2,), another as (1, 2)"]


def test_of_a_list_that_forked_nothing_more_is_concluded(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", Append("x", 2))
    story.tell("v", saw("x", 1, 2))
    story.tell("w", saw("x", 2))
    story.tell("z", Append("x", 3), us=(-20, -10))
    assert story.promises() == {"INCOMPATIBLE-ORDER"}


def test_an_element_that_comes_twice(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", saw("x", 1, 1))
    assert story.violations() == ["DUPLICATE: x has 1 twice: (1, 1)"]


def test_the_checker_reports_an_element_without_an_append(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", saw("x", 1, 7))
    assert story.violations() == ["GARBAGE: x was seen with 7, which nobody appended"]


def test_the_checker_reports_a_read_of_a_failed_append(story: Story) -> None:
    story.tell("t", Append("x", 1), status="fail")
    story.tell("u", saw("x", 1))
    assert story.violations() == ["G1A: x was seen with [1] of t, which failed"]


def test_the_checker_reports_failed_appends_within_lists_and_with_other_anomalies(
    story: Story,
) -> None:
    story.tell("t", Append("x", 1), status="fail")
    story.tell("u", Append("x", 2))
    story.tell("v", saw("x", 1, 2))
    assert story.promises() == {"G1A"}
    story.tell("w", Append("x", 3))
    story.tell("z", saw("x", 2, 3, 4))
    assert story.promises() == {"G1A", "INCOMPATIBLE-ORDER", "GARBAGE"}


def test_a_read_in_the_midst_of_a_transaction(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("x", 2))
    story.tell("u", saw("x", 1))
    assert story.violations() == ["G1B: x was seen with [1], of t's [1, 2]"]
    story.tell("v", saw("x", 1, 2))
    assert story.violations() == ["G1B: u saw x as (1,), in the midst of a writer's"]


@pytest.mark.parametrize("elements", [(2, 1), (1, 3), (2, 3)])
def test_elements_of_a_transaction_in_another_order_or_with_a_gap(
    story: Story, elements: tuple[int, ...]
) -> None:
    story.tell("t", Append("x", 1), Append("x", 2), Append("x", 3))
    story.tell("u", saw("x", *elements))
    assert story.promises() == {"G1B"}


def test_a_list_that_changes_under_a_reader(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", saw("x"), saw("x", 1))
    assert story.violations() == ["INTERNAL: u saw x as () and (1,)"]


def test_all_that_a_reader_saw_counts(story: Story) -> None:
    story.tell("t", Append("x", 1), status="fail")
    story.tell("u", Append("x", 2))
    story.tell("v", saw("x", 2), saw("x", 1))
    assert story.promises() == {"INTERNAL", "G1A"}


def test_the_checker_reports_a_transaction_that_sees_its_own_append(story: Story) -> None:
    """Dodona promises that it does not."""
    story.tell("t", saw("x", 1), Append("x", 1))
    assert story.violations() == ["INTERNAL: t saw [1] of its own in x"]


def test_the_checker_reports_an_acknowledged_append_that_no_read_saw(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x"), us=(11, 12))
    assert story.violations() == ["LOST-APPEND: t appended [1] to x, and nobody ever saw it"]
    assert story.violations("session") == []


def test_an_append_that_was_written_over(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x"), Append("x", 2), us=(5, 15))
    story.tell("v", saw("x", 2), us=(20, 30))
    assert story.promises() == {"LOST-APPEND"}


# Cycles


def test_write_cycle(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("y", 1))
    story.tell("u", Append("x", 2), Append("y", 2))
    story.tell("v", saw("x", 1, 2), saw("y", 2, 1))
    assert story.violations() == ["G0: t → ww x: 1, 2 → u → ww y: 2, 1 → t"]


def test_circular_information_flow(story: Story) -> None:
    story.tell("t", Append("x", 1), saw("y", 2))
    story.tell("u", Append("y", 2), saw("x", 1))
    assert story.violations() == ["G1C: t → wr x: 1 → u → wr y: 2 → t"]


def test_circular_flow_through_writes(story: Story) -> None:
    story.tell("t", Append("x", 1), saw("y", 2))
    story.tell("u", Append("x", 2), Append("y", 2))
    story.tell("v", saw("x", 1, 2))
    assert story.violations() == ["G1C: t → ww x: 1, 2 → u → wr y: 2 → t"]


def test_read_skew(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("y", 1))
    story.tell("u", saw("x"), saw("y", 1))
    story.tell("v", saw("x", 1))
    assert story.violations() == ["G-SINGLE: t → wr y: 1 → u → rw x: empty, 1 → t"]


def test_the_checker_reports_read_skew_of_an_append_that_no_read_saw(story: Story) -> None:
    """That there is another append behind all that was seen is known all the same."""
    story.tell("t", Append("x", 1), Append("y", 1))
    story.tell("u", saw("x"), saw("y", 1))
    story.tell("v", saw("x"))
    assert story.violations() == ["G-SINGLE: t → wr y: 1 → u → rw x: empty, 1 → t"]


def test_lost_update(story: Story) -> None:
    story.tell("t", saw("x", 1), Append("x", 2))
    story.tell("u", saw("x", 1), Append("x", 3))
    story.tell("v", Append("x", 1))
    story.tell("w", saw("x", 1, 2, 3))
    assert story.violations() == ["G-SINGLE: t → ww x: 2, 3 → u → rw x: 1, 2 → t"]


def test_the_checker_reports_a_lost_update_of_appends_that_no_read_saw(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1))
    story.tell("u", saw("x"), Append("x", 2))
    assert story.violations() == ["G-SINGLE: t and u all saw x as () and appended to it"]


def test_long_fork(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", Append("y", 1))
    story.tell("v", saw("x", 1), saw("y"))
    story.tell("w", saw("x"), saw("y", 1))
    assert story.violations() == [
        "G-NONADJACENT: t → wr x: 1 → v → rw y: empty, 1 → u → wr y: 1 → w → rw x: empty, 1 → t"
    ]


def test_the_checker_reports_the_strongest_and_shortest_cycle_of_a_component(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("y", 1), Append("z", 1), saw("q", 9))
    story.tell("u", saw("x"), saw("y", 1), Append("q", 8))
    story.tell("v", saw("z", 1), Append("q", 9))
    story.tell("w", saw("x", 1), saw("q", 9, 8))
    assert story.violations() == ["G1C: t → wr z: 1 → v → wr q: 9 → t"]


def test_the_checker_reports_the_shortest_cycle_of_a_component(story: Story) -> None:
    story.tell("t", Append("x", 1), saw("z", 1))
    story.tell("u", saw("x", 1), Append("y", 1), saw("w", 1))
    story.tell("v", saw("y", 1), Append("w", 1), Append("z", 1))
    assert story.violations() == ["G1C: u → wr y: 1 → v → wr w: 1 → u"]


def test_the_shortest_cycle_is_found_in_a_large_knot(story: Story) -> None:
    """Not from every moment: it is looked for first where somebody saw what came later."""
    for number in range(60):
        seen = [saw((number - 1) % 60, "e")] + [saw("z", 1)] * (number == 59)
        story.tell(f"t{number}", *seen, Append(number, "e"), us=(0, 1000))
    story.tell("u", saw("x", 1), Append("y", 1), saw(58, "e"), Append("z", 1), us=(0, 10))
    story.tell("v", saw("y", 1), Append("x", 1), us=(20, 1000))
    assert story.violations() == ["G1C: u → wr y: 1 → v → wr x: 1 → u"]


def test_the_checker_reports_the_cycle_with_the_fewest_rw_edges(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", Append("y", 1))
    story.tell("v", saw("x", 1), saw("y"), saw("r", 1))
    story.tell("w", saw("x"), saw("y", 1))
    story.tell("a", saw("y", 1), Append("p", 1))
    story.tell("b", saw("p", 1), Append("q", 1))
    story.tell("c", saw("q", 1), Append("r", 1))
    assert story.violations() == [
        "G-SINGLE: u → wr y: 1 → a → wr p: 1 → b → wr q: 1 → c → wr r: 1 → v → rw y: empty, 1 → u"
    ]


def test_the_checker_reports_a_cycle_of_each_component(story: Story) -> None:
    for key in "xy":
        story.tell(f"t{key}", Append(key, 1), Append(key * 2, 1))
        story.tell(f"u{key}", saw(key), saw(key * 2, 1))
    assert sorted(story.violations()) == [
        "G-SINGLE: tx → wr xx: 1 → ux → rw x: empty, 1 → tx",
        "G-SINGLE: ty → wr yy: 1 → uy → rw y: empty, 1 → ty",
    ]


# Sessions and real time


def test_a_stale_read_by_another_session(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x"), us=(11, 12))
    story.tell("v", saw("x", 1), us=(13, 14))
    assert story.violations() == ["REAL-TIME: t → real time → u → rw x: empty, 1 → t"]
    assert story.violations("session") == []


def test_a_stale_read_of_long_ago(story: Story) -> None:
    """However many others there were meanwhile, the cycle is told with the two that matter."""
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    for number in range(100):
        story.tell(f"m{number}", saw("y"), us=(20 * number + 11, 20 * number + 12))
    story.tell("u", saw("x"), us=(3000, 3010))
    story.tell("v", saw("x", 1), us=(3000, 3010))
    assert story.violations() == ["REAL-TIME: t → real time → u → rw x: empty, 1 → t"]


def test_a_read_of_the_future(story: Story) -> None:
    story.tell("t", saw("x", 1), us=(0, 10))
    story.tell("u", Append("x", 1), us=(11, 20))
    assert story.violations() == ["REAL-TIME: t → real time → u → wr x: 1 → t"]


def test_equal_instants_are_no_order(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), us=(0, 10))
    story.tell("u", saw("x"), us=(10, 12))
    story.tell("v", saw("x", 1), us=(10, 12))
    assert story.violations() == []


def test_the_checker_reports_a_session_that_does_not_see_its_own_append(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), session="s", us=(0, 10))
    story.tell("u", saw("x"), session="s", us=(10, 12))
    assert story.violations() == ["SESSION: t → session → u → rw x: empty, 1 → t"]
    assert story.violations("none") == []


def test_the_checker_reports_a_session_with_reads_that_go_back(story: Story) -> None:
    story.tell("t", Append("x", 1))
    story.tell("u", saw("x", 1), session="s", us=(0, 10))
    story.tell("v", saw("x"), session="s", us=(11, 20))
    assert story.violations("session") == [
        "SESSION: t → wr x: 1 → u → session → v → rw x: empty, 1 → t"
    ]


def test_a_session_s_transactions_are_ordered_by_their_instants(story: Story) -> None:
    story.tell("u", saw("x", 1), session="s", us=(11, 20))
    story.tell("t", saw("x"), Append("x", 1), session="s", us=(0, 10))
    assert story.violations() == []


# The unsure, and those that did not commit


@pytest.mark.parametrize("status", ["info", "open"])
def test_an_unsure_transaction_that_no_read_saw_did_nothing(story: Story, status: Status) -> None:
    end_us = 10 if status == "info" else None
    story.tell("t", saw("x"), Append("x", 1), status=status, us=(0, end_us))
    story.tell("u", saw("x"), Append("x", 2), us=(20, 30))
    story.tell("v", saw("x", 2), us=(40, 50))
    assert story.violations(is_serializable=True) == []


@pytest.mark.parametrize("status", ["info", "open"])
def test_an_unsure_transaction_that_was_seen_committed(story: Story, status: Status) -> None:
    end_us = 10 if status == "info" else None
    story.tell(
        "t", saw("x"), saw("y"), Append("x", 1), Append("y", 1), status=status, us=(0, end_us)
    )
    story.tell("u", saw("x", 1), saw("y", 1), us=(20, 30))
    assert story.violations(is_serializable=True) == []
    story.tell("v", saw("x", 1), saw("y"), us=(20, 30))
    assert story.promises() == {"G-SINGLE"}


def test_an_unsure_transaction_may_commit_after_its_last_answer(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), session="s", status="info", us=(0, 10))
    story.tell("u", saw("x"), session="s", us=(20, 30))
    story.tell("v", saw("x", 1), us=(40, 50))
    assert story.violations(is_serializable=True) == []


@pytest.mark.parametrize("status", ["info", "open"])
def test_half_of_an_unsure_transaction(story: Story, status: Status) -> None:
    """Seen at one key, it committed: then those who see the other's end do not see it whole."""
    story.tell("t", saw("x"), saw("y"), Append("x", 1), Append("y", 1), status=status)
    story.tell("u", saw("x", 1), saw("y"))
    assert story.promises() == {"G-SINGLE"}


def test_reads_of_an_unsure_transaction_precede_its_answer(story: Story) -> None:
    story.tell("t", Append("x", 1), us=(0, 100))
    story.tell("u", saw("x", 1), saw("y"), Append("y", 1), status="info", us=(0, 10))
    story.tell("v", saw("x"), us=(20, 30))
    assert story.promises() == {"REAL-TIME"}
    story.tell("w", saw("y", 1), us=(200, 300))
    assert story.promises() == {"REAL-TIME"}


@pytest.mark.parametrize("status", ["fail", "info", "open"])
def test_the_checker_reports_read_skew_of_transactions_that_did_not_commit(
    story: Story, status: Status
) -> None:
    story.tell("t", Append("x", 1), Append("y", 1))
    story.tell("u", saw("x"), saw("y", 1), Append("z", 1), status=status)
    story.tell("v", saw("x", 1))
    assert story.promises() == {"G-SINGLE"}


def test_a_failed_transaction_conflicts_with_no_other_transaction(story: Story) -> None:
    story.tell("t", saw("x"), Append("x", 1), status="fail")
    story.tell("u", saw("x"), Append("x", 2))
    story.tell("v", saw("x", 2))
    assert story.violations(is_serializable=True) == []


# Empty lists, and the checker's own demands


def test_an_empty_list_comes_before_all_others(story: Story) -> None:
    story.tell("t", Append("x", 1), us=(0, 10))
    story.tell("u", Append("x", 2), us=(11, 20))
    story.tell("v", saw("x", 1, 2), us=(30, 40))
    story.tell("w", saw("x"), us=(12, 40))
    assert story.violations() == ["REAL-TIME: t → real time → w → rw x: empty, 1 → t"]


def test_elements_must_be_unique_in_their_key(story: Story) -> None:
    story.tell("t", Append("x", 1), Append("y", 1))
    story.tell("u", Append("x", 1))
    with pytest.raises(AssertionError, match="u repeats the append of 1 to x"):
        story.violations()


def test_a_promise_is_flagged_once_a_key(story: Story) -> None:
    for number in range(5):
        story.tell(f"t{number}", saw("x", number), saw("y"))
    assert len(story.violations()) == 2
