"""The end of a doubt: what a read proves about a compare, and what it does not."""

from hypothesis import given
from hypothesis import strategies as st

from dodona_replication.core.coordination import (
    Applied,
    Compare,
    InDoubt,
    NewestSeen,
    Superseded,
)
from dodona_replication.core.document import Document, Revisioned, owner_id

FIRST = Document.initial(["a", "b"], 2)
MINE = FIRST.take_over(owner_id("node", b"11111111"))
THEIRS = FIRST.take_over(owner_id("node", b"22222222"))


def test_a_read_of_an_old_revision_proves_nothing() -> None:
    compare = Compare(7, MINE)
    for seen in (None, Revisioned(FIRST, 7), Revisioned(FIRST, 6)):
        assert isinstance(compare.settle(seen), InDoubt)
    assert isinstance(Compare(None, FIRST).settle(None), InDoubt)


def test_a_read_of_a_higher_revision_settles() -> None:
    compare = Compare(7, MINE)
    assert compare.settle(Revisioned(MINE, 8)) == Applied(8)
    assert compare.settle(Revisioned(THEIRS, 9)) == Superseded(Revisioned(THEIRS, 9))
    assert Compare(None, FIRST).settle(Revisioned(FIRST, 3)) == Applied(3)


def test_a_document_that_followed_mine_shows_that_mine_is_over() -> None:
    following = Revisioned(MINE.take_over(owner_id("node", b"22222222")), 9)
    assert Compare(7, MINE).settle(following) == Superseded(following)


def test_the_same_name_with_another_start_is_another_owner() -> None:
    assert Compare(7, MINE).settle(Revisioned(THEIRS, 8)) == Superseded(Revisioned(THEIRS, 8))


@given(st.lists(st.integers(1, 20)), st.integers(0, 10))
def test_a_watch_passes_on_rising_revisions_only(revisions: list[int], after: int) -> None:
    newest = NewestSeen(after)
    passed = [it for it in revisions if newest.take(Revisioned(FIRST, it))]
    assert passed == sorted({*passed})
    assert all(it > after for it in passed)
    assert newest.revision == max([after, *revisions])
