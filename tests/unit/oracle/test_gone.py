"""Which tablets a master says are gone: those whose rows nobody needs any more, and no other."""

from collections.abc import Callable
from typing import Any

import pytest

from dodona.errors import InvalidRequest
from dodona.types import (
    KEY_MIN,
    NO_CLUSTER,
    NO_TREE_TRANSACTION,
    CellId,
    Key,
    TabletId,
    TreeTransactionId,
)
from dodona_oracle.core.catalog import Catalog
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.catalog import (
    GetTable,
    Heartbeat,
    MountedTablet,
    MountTable,
    ReshardTable,
    Tablet,
    UnmountTable,
)
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    RemoveNode,
)
from unit.oracle.realm import create, pivot
from unit.oracle.tree_realm import Tree

ALL = NO_TREE_TRANSACTION
PATH, OTHER = "//t", "//u"
FAR = 10_000


def cluster() -> Tree:
    """Two cells; a table of one tablet, unmounted, that was mounted in the first."""
    made = Tree()
    made.beat(0)
    made.ask(create(PATH))
    made.ask(MountTable(PATH))
    made.serve(0)
    close(made, PATH)
    made.beat(1)
    return made


@pytest.fixture
def tree() -> Tree:
    return cluster()


def close(tree: Tree, path: str) -> None:
    tree.ask(UnmountTable(path))
    for cell in (0, 1):
        tree.beat(cell)


def tablets(tree: Tree, path: str = PATH, transaction: TreeTransactionId = ALL) -> tuple[Any, ...]:
    found: tuple[Tablet, ...] = tree.ask(GetTable(path, transaction)).tablets
    return tuple(it.tablet for it in found)


def gone(tree: Tree) -> set[TabletId]:
    """Of all ids that were ever given out. (A restart changes nothing.)"""
    ids = range(1, tree.state().last_id + 1)
    found = set(tree.beat(0, stored=ids).dropped)
    tree.restart()
    tree.beat(1)
    assert set(tree.beat(0, stored=ids).dropped) == found
    return found


def reshard(tree: Tree, *pivots: Key) -> None:
    tree.ask(ReshardTable(PATH, pivots))


def test_an_existing_table_keeps_its_tablets_mounted_or_unmounted(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    for _ in range(2):
        assert tablet not in gone(tree)
        tree.ask(MountTable(PATH))
        tree.serve(0)


def test_the_master_reports_only_gone_tablets_that_a_joined_cell_names(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    tree.ask(RemoveNode(PATH))
    assert tree.beat(0).dropped == ()
    assert tree.beat(0, stored=[tablet]).dropped == (tablet,)
    beat = Heartbeat(CellId(9), "http://new", (), 1, cluster=NO_CLUSTER, stored=(tablet,))
    assert tree.ask(beat).dropped == ()


def test_the_tablets_of_a_table_removed_while_mounting_are_gone(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    tree.ask(MountTable(PATH))
    tree.ask(RemoveNode(PATH))
    assert tablet in gone(tree)
    assert tree.beat(0).tablets == ()


def test_a_new_table_at_the_same_path_has_other_tablets(tree: Tree) -> None:
    (old,) = tablets(tree)
    tree.ask(RemoveNode(PATH))
    tree.ask(create(PATH))
    (new,) = tablets(tree)
    assert old in gone(tree)
    assert new not in gone(tree)


# Rows that are to be taken over


def test_a_source_tablet_is_kept_until_all_tablets_that_replace_it_are_served(
    tree: Tree,
) -> None:
    (old,) = tablets(tree)
    reshard(tree, KEY_MIN, pivot(5))
    assert old not in gone(tree)
    tree.ask(MountTable(PATH))
    assert len(set(tree.cells(PATH))) == 2
    tree.serve(0)
    assert old not in gone(tree)
    tree.serve(1)
    assert old in gone(tree)


def test_a_report_from_another_mount_does_not_release_a_source_tablet(tree: Tree) -> None:
    (old,) = tablets(tree)
    reshard(tree, KEY_MIN)
    tree.ask(MountTable(PATH))
    (wanted,) = tree.beat(0).tablets or tree.beat(1).tablets
    cell = tree.cells(PATH)[0]
    assert cell is not None
    stale = MountedTablet(wanted.tablet, type(wanted.revision)(wanted.revision - 1))
    tree.beat(cell, stale)
    assert old not in gone(tree)


def test_after_a_second_reshard_the_first_source_stays_and_unused_tablets_are_gone(
    tree: Tree,
) -> None:
    (old,) = tablets(tree)
    reshard(tree, KEY_MIN, pivot(5))
    between = tablets(tree)
    reshard(tree, KEY_MIN)
    assert old not in gone(tree)
    assert set(between) <= gone(tree)
    tree.ask(MountTable(PATH))
    for cell in (0, 1):
        tree.serve(cell)
    assert old in gone(tree)


def test_the_source_tablets_of_a_removed_table_are_gone_too(tree: Tree) -> None:
    (old,) = tablets(tree)
    reshard(tree, KEY_MIN)
    tree.ask(MountTable(PATH))
    (new,) = tablets(tree)
    tree.ask(RemoveNode(PATH))
    assert {old, new} <= gone(tree)


def test_the_tablets_of_a_removed_table_stay_until_its_copy_has_the_rows(tree: Tree) -> None:
    (old,) = tablets(tree)
    tree.ask(CopyNode(PATH, OTHER))
    tree.ask(RemoveNode(PATH))
    assert old not in gone(tree)
    (copy,) = tree.beat(0).tablets
    tree.beat(0, MountedTablet(copy.tablet, copy.revision, "unmounted"))
    assert old in gone(tree)
    assert copy.tablet not in gone(tree)


# Master transactions


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_table_removed_in_a_transaction_is_gone_when_that_is_committed(
    tree: Tree, is_nested: bool
) -> None:
    (tablet,) = tablets(tree)
    outer = tree.begin()
    mine = tree.begin(outer) if is_nested else outer
    tree.ask(RemoveNode(PATH, transaction=mine))
    assert tablet not in gone(tree)
    if is_nested:
        tree.commit(mine)
        assert tablet not in gone(tree)
    tree.commit(outer)
    assert tablet in gone(tree)


def test_a_table_removed_in_a_transaction_that_is_aborted_was_never_gone(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    mine = tree.begin()
    tree.ask(RemoveNode(PATH, transaction=mine))
    tree.abort(mine)
    assert tablet not in gone(tree)
    mine = tree.begin()
    tree.ask(RemoveNode(PATH, transaction=mine))
    tree.instant_us += 3_600_000_000
    assert tablet not in gone(tree)
    assert tree.catalog.statistics().tree_transaction_count == 0, "it has not expired"


@pytest.mark.parametrize("end", [CommitTreeTransaction, AbortTreeTransaction])
def test_an_uncommitted_copy_keeps_the_tablets_of_its_source(tree: Tree, end: Any) -> None:
    """And it has tablets of its own, which are not gone as long as it may be committed."""
    (old,) = tablets(tree)
    mine = tree.begin()
    tree.ask(CopyNode(PATH, OTHER, transaction=mine))
    tree.ask(RemoveNode(PATH, transaction=mine))
    (copy,) = tablets(tree, OTHER, mine)
    assert gone(tree).isdisjoint({old, copy})
    tree.ask(end(mine))
    is_committed = end is CommitTreeTransaction
    assert old not in gone(tree)
    assert (copy in gone(tree)) != is_committed
    if is_committed:
        (wanted,) = tree.beat(0).tablets
        tree.beat(0, MountedTablet(wanted.tablet, wanted.revision, "unmounted"))
        assert old in gone(tree)


def test_a_table_made_and_removed_in_one_transaction_is_gone_immediately(tree: Tree) -> None:
    mine = tree.begin()
    tree.make_table(OTHER, mine)
    (tablet,) = tablets(tree, OTHER, mine)
    assert tablet not in gone(tree)
    tree.ask(RemoveNode(OTHER, transaction=mine))
    assert tablet in gone(tree)
    tree.commit(mine)
    assert tablet in gone(tree)


def test_a_snapshot_lock_shows_a_removed_table_that_cannot_be_copied(tree: Tree) -> None:
    (old,) = tablets(tree)
    mine = tree.begin()
    tree.lock(PATH, "snapshot", mine)
    tree.ask(RemoveNode(PATH))
    assert tablets(tree, PATH, mine) == (old,)
    assert old in gone(tree)
    for transaction in (mine, tree.begin(mine)):
        with pytest.raises(InvalidRequest, match="snapshot lock"):
            tree.ask(CopyNode(PATH, OTHER, transaction=transaction))


# Masters that know less than the cell


def test_a_tablet_id_that_the_master_never_issued_is_not_reported_as_gone(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    tree.ask(RemoveNode(PATH))
    before = tree.as_it_was()
    tree.ask(create(OTHER))
    (new,) = tablets(tree, OTHER)
    next_id = new - 1
    assert before.beat(0, stored=[tablet, next_id, new, FAR]).dropped == (tablet,)
    assert tree.beat(0, stored=[tablet, new, FAR]).dropped == (tablet,)


def remove_within_a_transaction(tree: Tree) -> None:
    mine = tree.begin()
    tree.ask(RemoveNode(PATH, transaction=mine))
    tree.commit(mine)


def divide_anew(tree: Tree) -> None:
    reshard(tree, KEY_MIN, pivot(3))
    tree.ask(MountTable(PATH))
    for cell in (0, 1):
        tree.serve(cell)


@pytest.mark.parametrize(
    "leave", [lambda it: it.ask(RemoveNode(PATH)), remove_within_a_transaction, divide_anew]
)
def test_an_answer_that_drops_a_tablet_has_a_higher_revision_than_before(
    tree: Tree, leave: Callable[[Tree], object]
) -> None:
    """So that a cell that has dropped it does not begin it anew, without its rows."""
    (tablet,) = tablets(tree)
    before = tree.as_it_was()
    leave(tree)
    answer = tree.beat(0, stored=[tablet])
    assert answer.dropped == (tablet,)
    assert before.beat(0, stored=[tablet]).dropped == ()
    assert before.beat(0).revision < answer.revision


# Fault points


def test_a_fault_point_drops_a_removed_tablet_while_a_cell_still_serves_it(tree: Tree) -> None:
    (tablet,) = tablets(tree)
    tree.catalog = Catalog(
        tree.state(), tree.append, tree.now(), lambda it: it is FaultPoint.DROP_EARLY
    )
    tree.beat(0)
    tree.ask(MountTable(PATH))
    (wanted,) = tree.beat(0).tablets
    served = MountedTablet(tablet, wanted.revision)
    assert tree.beat(0, served).dropped == ()
    tree.ask(RemoveNode(PATH))
    assert tree.beat(0, served).dropped == (tablet,)
