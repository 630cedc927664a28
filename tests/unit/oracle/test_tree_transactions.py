"""Master transactions: who sees what, and how they end."""

from typing import Any

import pytest

from dodona.errors import (
    InvalidRequest,
    InvalidTabletState,
    LimitExceeded,
    TransactionClosed,
    TransactionNotFound,
    Unavailable,
)
from dodona.types import TreeTransactionId
from dodona_oracle.core import tree_transactions
from dodona_wire.messages.catalog import GetTable, ListTables, MountTable, TableList, UnmountTable
from dodona_wire.messages.tree import (
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    LockNode,
    MoveNode,
    PingTreeTransaction,
    RemoveNode,
)
from unit.oracle.tree_realm import ALL, Tree

SECOND_US = 1_000_000


@pytest.fixture
def tree() -> Tree:
    return Tree()


# Who sees what


def test_changes_are_visible_only_inside_the_transaction_until_its_commit(tree: Tree) -> None:
    tree.make("//a")
    mine = tree.begin()
    nested, other = tree.begin(mine), tree.begin()
    tree.make("//a/new", mine)
    tree.put("//a/@x", 1, mine)
    tree.make_table("//t", mine)
    for inside in (mine, nested):
        assert tree.get("/", inside) == {"a": {"new": {}}, "t": None}
        assert tree.get("//a/@x", inside) == 1
        assert tree.ask(GetTable("//t", inside)).path == "//t"
    for outside in (ALL, other):
        assert tree.get("/", outside) == {"a": {}}
        assert not tree.exists("//a/@x", outside)
    assert tree.ask(ListTables("//")) == TableList(())
    tree.commit(mine)
    assert tree.get("/") == {"a": {"new": {}}, "t": None}
    assert tree.get("//a/@x") == 1
    assert tree.ask(ListTables("//")) == TableList(("//t",))


def test_aborting_leaves_nothing_behind(tree: Tree) -> None:
    tree.make_table("//t")
    before = dict(tree.values)
    mine = tree.begin()
    tree.make_table("//d/u", mine)
    tree.put("//t/@x", 1, mine)
    tree.ask(RemoveNode("//t", transaction=mine))
    tree.abort(mine)
    changed = {name for name, value in tree.values.items() if before.get(name) != value}
    assert changed == {("counters", b"id")}
    assert tree.get("/") == {"t": None}
    assert tree.catalog.statistics().table_count == 1


def test_changes_of_a_nested_commit_are_kept_only_if_the_parent_commits(tree: Tree) -> None:
    for is_kept in (True, False):
        mine = tree.begin()
        nested = tree.begin(mine)
        tree.make("//a", nested)
        assert not tree.exists("//a", mine)
        tree.commit(nested)
        assert tree.exists("//a", mine)
        assert not tree.exists("//a")
        tree.commit(mine) if is_kept else tree.abort(mine)
        assert tree.exists("//a") == is_kept
        tree.ask(RemoveNode("//a", is_forced=True))


def test_a_table_of_the_outer_transaction_stays_if_a_nested_one_changes_it(tree: Tree) -> None:
    outer = tree.begin()
    tree.make_table("//t", outer)
    nested = tree.begin(outer)
    tree.put("//t/@x", 1, nested)
    tree.put("//t/@max_data_ttl", 7, nested)
    tree.commit(nested)
    tree.restart()
    tree.commit(outer)
    assert tree.get("//t/@x") == 1
    assert tree.ask(GetTable("//t")).settings.max_data_ttl == 7


def test_a_table_is_counted_once_through_nested_commits(tree: Tree) -> None:
    outer = tree.begin()
    nested = tree.begin(outer)
    tree.make_table("//t", nested)
    for transaction in (nested, outer):
        tree.commit(transaction)
        statistics = tree.catalog.statistics()
        assert (statistics.table_count, statistics.tablet_count) == (1, 1)
    tree.ask(RemoveNode("//t"))
    assert tree.catalog.statistics().table_count == 0
    assert tree.catalog._tables._retained == {}, "nothing is kept of a tablet that is gone"


def test_a_restarted_master_shows_the_moves_and_removals_of_an_open_transaction(
    tree: Tree,
) -> None:
    tree.make("//a")
    for name in ("kept", "moved", "gone"):
        tree.make(f"//a/{name}")
    mine = tree.begin()
    tree.put("//a/kept/@x", 1, mine)
    tree.ask(MoveNode("//a/moved", "//a/elsewhere", transaction=mine))
    tree.ask(RemoveNode("//a/gone", transaction=mine))
    tree.make("//a/new", mine)
    tree.restart()
    inside: dict[str, Any] = {"a": {"elsewhere": {}, "kept": {}, "new": {}}}
    assert tree.get("/", mine) == inside
    assert tree.ask(ListNodes("//a", mine)).names == ("elsewhere", "kept", "new")
    assert tree.get("/") == {"a": {"gone": {}, "kept": {}, "moved": {}}}
    tree.commit(mine)
    assert tree.get("/") == inside
    assert tree.get("//a/kept/@x") == 1


def test_a_table_made_in_one_and_removed_in_the_next_was_never_there(tree: Tree) -> None:
    mine = tree.begin()
    tree.make_table("//t", mine)
    nested = tree.begin(mine)
    tree.ask(RemoveNode("//t", transaction=nested))
    tree.commit(nested)
    tree.commit(mine)
    assert tree.get("/") == {}
    assert tree.catalog.statistics().tablet_count == 0


def test_a_commit_aborts_those_still_inside(tree: Tree) -> None:
    mine = tree.begin()
    nested = tree.begin(mine)
    tree.make("//a", mine)
    tree.make("//a/b", nested)
    tree.commit(mine)
    assert tree.get("/") == {"a": {}}
    with pytest.raises(TransactionNotFound):
        tree.commit(nested)


def test_a_commit_is_one_record(tree: Tree) -> None:
    mine = tree.begin()
    for number in range(5):
        tree.make_table(f"//d/t{number}", mine)
    before = len(tree.records)
    tree.commit(mine)
    assert len(tree.records) == before + 1


def test_settings_of_a_table_apply_with_the_commit(tree: Tree) -> None:
    tree.make_table("//t")
    mine = tree.begin()
    tree.put("//t/@atomicity", "none", mine)
    tree.put("//t/@max_data_ttl", 5, mine)
    with pytest.raises(InvalidRequest, match="max_data_ttl"):
        tree.put("//t/@max_data_ttl", -1, mine)
    table = tree.ask(GetTable("//t", mine))
    assert (table.atomicity, table.settings.max_data_ttl) == ("none", 5)
    assert tree.get("//t/@max_data_ttl", mine) == 5
    assert tree.get("//t/@atomicity") == "full"
    tree.restart()
    assert tree.get("//t/@atomicity", mine) == "none"
    tree.commit(mine)
    table = tree.ask(GetTable("//t"))
    assert (table.atomicity, table.settings.max_data_ttl) == ("none", 5)


def test_copying_under_a_transaction_keeps_the_source_unmounted(tree: Tree) -> None:
    tree.beat(0)
    tree.make_table("//t")
    tree.ask(MountTable("//t"))
    tree.serve(0)
    mine = tree.begin()
    with pytest.raises(InvalidTabletState):
        tree.ask(CopyNode("//t", "//u", transaction=mine))
    tree.ask(UnmountTable("//t"))
    tree.serve(0)
    tree.ask(CopyNode("//t", "//u", transaction=mine))
    assert tree.beat(0).tablets == ()
    tree.refused(MountTable("//t"))
    tree.commit(mine)
    (assigned,) = tree.beat(0).tablets  # the copy takes over the rows
    assert (assigned.path, assigned.mode) == ("//u", "unmounted")
    tree.ask(MountTable("//t"))


def test_a_copy_can_be_copied_before_its_transaction_commits(tree: Tree) -> None:
    tree.beat(0)
    tree.make_table("//t")
    tree.ask(MountTable("//t"))
    (source,) = tree.serve(0).tablets
    tree.ask(UnmountTable("//t"))
    tree.beat(0)
    mine = tree.begin()
    tree.ask(CopyNode("//t", "//u", transaction=mine))
    nested = tree.begin(mine)
    tree.ask(CopyNode("//u", "//v", transaction=nested))
    tree.commit(nested)
    tree.refused(MountTable("//t"))
    tree.commit(mine)
    assigned = tree.beat(0).tablets
    assert [(it.path, it.mode) for it in assigned] == [("//u", "unmounted"), ("//v", "unmounted")]
    assert [[its.tablet for its in it.sources] for it in assigned] == [[source.tablet]] * 2
    with pytest.raises(Unavailable, match="still being copied"):
        tree.ask(CopyNode("//u", "//w"))


# Beginning and ending


def test_a_copy_that_is_refused_leaves_no_trace(tree: Tree) -> None:
    """The first table could be copied. The second still waits for its rows."""
    tree.beat(0)
    tree.make_table("//from")
    tree.ask(MountTable("//from"))
    tree.serve(0)
    tree.ask(UnmountTable("//from"))
    tree.beat(0)
    tree.make_table("//a/first")
    tree.ask(CopyNode("//from", "//a/second"))
    before, record_count = tree.catalog.statistics(), len(tree.records)
    with pytest.raises(Unavailable, match="still being copied"):
        tree.ask(CopyNode("//a", "//b"))
    assert tree.catalog.statistics() == before
    assert len(tree.records) == record_count


def test_one_that_ended_or_never_was_is_not_found(tree: Tree) -> None:
    ended = tree.begin()
    tree.abort(ended)
    for transaction in (ended, TreeTransactionId(12345)):
        for request in (
            PingTreeTransaction(transaction),
            CommitTreeTransaction(transaction),
            BeginTreeTransaction(5000, transaction),
            CreateDirectory("//a", transaction=transaction),
            GetNode("/", transaction),
            LockNode("/", "shared", transaction),
        ):
            with pytest.raises(TransactionNotFound, match="may have expired") as caught:
                tree.ask(request)
            assert caught.value.attributes == {"transaction": transaction}
        tree.abort(transaction)  # is what was wanted


def test_a_commit_may_be_repeated(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_transactions, "COMMITTED_MAX", 2)
    transactions = [tree.begin() for _ in range(3)]
    for transaction in transactions:
        tree.commit(transaction)
    tree.commit(transactions[2])
    tree.commit(transactions[1])
    with pytest.raises(TransactionClosed, match="committed"):
        tree.abort(transactions[2])
    with pytest.raises(TransactionNotFound):
        tree.commit(transactions[0])


def test_a_commit_may_be_repeated_after_a_restart(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_transactions, "COMMITTED_MAX", 2)
    transactions = [tree.begin() for _ in range(3)]
    for transaction in reversed(transactions):
        tree.commit(transaction)
    tree.restart()
    with pytest.raises(TransactionNotFound):
        tree.commit(transactions[2])
    tree.commit(transactions[0])
    tree.commit(tree.begin())
    tree.restart()
    tree.commit(transactions[0])  # the older id, and the later commit
    with pytest.raises(TransactionNotFound):
        tree.commit(transactions[1])


def test_one_that_is_not_pinged_ends_with_all_inside(tree: Tree) -> None:
    quiet, pinged = tree.begin(), tree.begin()
    in_quiet, in_pinged = tree.begin(quiet), tree.begin(pinged)
    tree.make("//q", quiet)
    tree.make("//n", in_quiet)
    tree.instant_us += 4 * SECOND_US
    tree.ask(PingTreeTransaction(in_pinged))
    tree.instant_us += SECOND_US - 1
    tree.catalog.tick(tree.now())
    assert tree.catalog.statistics().tree_transaction_count == 4
    tree.instant_us += 1
    tree.catalog.tick(tree.now())
    assert tree.catalog.statistics().tree_transaction_count == 2
    assert tree.catalog.statistics().lock_count == 0
    with pytest.raises(TransactionNotFound, match="not pinged in time"):
        tree.commit(in_quiet)
    tree.make("//q", in_pinged)
    tree.restart()
    assert tree.catalog.statistics().tree_transaction_count == 2


def test_a_nested_one_may_end_before_the_others(tree: Tree) -> None:
    mine = tree.begin()
    nested = tree.begin(mine)
    tree.make("//a", nested)
    tree.instant_us += 4 * SECOND_US
    tree.ask(PingTreeTransaction(mine))
    tree.instant_us += SECOND_US
    assert tree.get("/", mine) == {}
    tree.make("//a", mine)
    with pytest.raises(TransactionNotFound):
        tree.ask(PingTreeTransaction(nested))


def test_the_next_deadline_is_that_of_the_first_lease(tree: Tree) -> None:
    assert tree.catalog.next_deadline() is None
    tree.ask(BeginTreeTransaction(5000))
    tree.ask(BeginTreeTransaction(1000))
    assert tree.catalog.next_deadline() == SECOND_US
    tree.instant_us = SECOND_US
    tree.catalog.tick(tree.now())
    assert tree.catalog.next_deadline() == 5 * SECOND_US


def test_leases_of_master_transactions_start_again_after_a_restart(tree: Tree) -> None:
    mine = tree.begin()
    tree.make_table("//t", mine)
    tree.instant_us += 4 * SECOND_US
    tree.restart()
    tree.instant_us += 4 * SECOND_US
    assert tree.get("/", mine) == {"t": None}
    tree.commit(mine)
    assert tree.ask(ListTables("//")) == TableList(("//t",))


@pytest.mark.parametrize("timeout_ms", [0, -1, 999, 3_600_001])
def test_a_time_out_is_one_second_to_one_hour(tree: Tree, timeout_ms: int) -> None:
    with pytest.raises(InvalidRequest, match="1000 to 3600000 ms"):
        tree.ask(BeginTreeTransaction(timeout_ms))
    assert tree.records == []
    for allowed_ms in (1_000, 3_600_000):
        assert tree.ask(BeginTreeTransaction(allowed_ms)).timeout_ms == allowed_ms


def test_transactions_their_nesting_and_titles_are_limited(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    innermost = ALL
    for _ in range(16):
        innermost = tree.begin(innermost)
    with pytest.raises(LimitExceeded, match="16"):
        tree.begin(innermost)
    with pytest.raises(LimitExceeded, match="title"):
        tree.begin(title="x" * 1025)
    monkeypatch.setattr(tree_transactions, "TRANSACTIONS_MAX", 17)
    tree.begin(title="x" * 1024)
    with pytest.raises(LimitExceeded, match="17"):
        tree.begin()


def test_open_transactions_are_listed_with_the_remaining_time_of_their_leases(tree: Tree) -> None:
    outer = tree.begin(title="<b>moving</b>")
    tree.instant_us += 1_000_000
    inner = tree.begin(outer)
    tree.instant_us += 500_000
    found = tree.catalog.open_transactions(tree.now())
    assert [it.transaction for it in found] == [outer, inner]
    assert [it.parent for it in found] == [0, outer]
    assert [(it.title, it.timeout_ms) for it in found] == [("<b>moving</b>", 5_000), ("", 5_000)]
    assert [it.expires_ms for it in found] == [3_500, 4_500]
    tree.instant_us += 60_000_000
    assert [it.expires_ms for it in tree.catalog.open_transactions(tree.now())] == [0, 0]
    tree.abort(outer)
    assert tree.catalog.open_transactions(tree.now()) == []
