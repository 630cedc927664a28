"""What a replica knows of a log without its bytes, compared with a list of entries."""

from hypothesis import given
from hypothesis import strategies as st

from dodona_replication.core.tail import Tail
from unit.replication.replicas import entries


def test_an_empty_log_has_no_epochs() -> None:
    tail = Tail()
    assert (len(tail), tail.last_epoch, tail.last_indexes) == (0, 0, ())
    assert tail.epoch_at(0) == 0
    assert tail.epoch_at(1) is None
    assert not tail.has(0, 0)


def test_a_cut_log_keeps_the_epoch_of_the_entry_before_it() -> None:
    tail = Tail()
    tail.extend(entries(1, 1, 2, 4))
    tail.cut_before(3)
    assert (tail.first_index, tail.epoch_before) == (3, 1)
    assert tail.last_indexes == ((2, 3), (4, 4))
    assert tail.epoch_at(2) == 1
    assert not tail.has(2, 1)
    assert tail.epoch_at(1) is None


def test_a_copy_changes_by_itself() -> None:
    tail = Tail()
    tail.extend(entries(1, 1))
    copy = tail.copy()
    copy.extend(entries(2, first_index=3))
    assert tail.last_indexes == ((1, 2),)
    assert copy.last_indexes == ((1, 2), (2, 3))


@given(st.lists(st.integers(1, 4), max_size=12).map(sorted), st.data())
def test_a_tail_says_what_a_list_says(epochs: list[int], data: st.DataObject) -> None:
    tail = Tail()
    tail.extend(entries(*epochs))
    known = dict(enumerate(epochs, start=1))
    before = 0
    for _ in range(3):
        first, last = tail.first_index, tail.last_index
        is_cut: bool = data.draw(st.booleans())
        if known and is_cut:
            index: int = data.draw(st.integers(first, last))
            before = known[index - 1] if index > first else before
            tail.cut_before(index)
            known = {at: it for at, it in known.items() if at >= index}
        else:
            index = data.draw(st.integers(first - 1, last))
            tail.drop_behind(index)
            known = {at: it for at, it in known.items() if at <= index}
        assert len(tail) == len(known)
        assert [tail.epoch_at(at) for at in range(tail.first_index, tail.last_index + 1)] == [
            *known.values()
        ]
        assert tail.epoch_before == before
        assert dict(tail.last_indexes) == {epoch: at for at, epoch in known.items()}
