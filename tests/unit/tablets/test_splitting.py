"""Where tablets are cut into parts: about as many rows in each, without reading many."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Key, Revision, Timestamp, Write
from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.stores import Stores
from dodona_tablets.core.tablet import splitting
from dodona_tablets.core.tablet.splitting import BLOCKS_OPENED_MAX, CUTS_MAX, KEY_BYTES_MAX, split
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import SplitKeys, SplitTablet
from unit.tablets.cells import ATOMIC, REVISION, Bench, put
from unit.tablets.cells import key as bench_key
from unit.tablets.chunks.making import FULL, SCHEMA, at, key, made_of, small_blocks

TEXTS = TableSchema.parse([Column("id", "utf8", "ascending"), Column("a", "int64")])


def stores(
    chunks: Sequence[range] = (),
    passive: Sequence[range] = (),
    active: Sequence[int] = (),
    *,
    block_rows: int = 100,
) -> Stores:
    """Of a tablet with these keys in its layers."""
    found = Stores(SCHEMA)
    for number, keys in enumerate(chunks):
        with small_blocks(block_rows):
            chunk = made_of({key(it): [at(10, it)] for it in keys}, number=number + 1).open()
        found.attach(AttachedChunk(chunk.info), chunk)
    for keys in passive:
        found.active.apply(writes_of(keys), Timestamp(20), 10)
        found.rotate()
    found.active.apply(writes_of(active), Timestamp(20), 10)
    return found


def writes_of(keys: Sequence[int]) -> list[Write]:
    return [(key(it), FULL, (it, None, None)) for it in keys]


def ask(count: int, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> SplitTablet:
    return SplitTablet(ATOMIC, REVISION, lower, upper, count)


def parts(keys: Sequence[int], found: SplitKeys, lower: int, upper: int) -> list[int]:
    """How many of the keys are in each part."""
    ends = [key(lower), *found.keys, key(upper)]
    assert all(a < b for a, b in pairwise(ends)), "cuts rise, and are within the range"
    encoded = [key(it) for it in keys]
    return [sum(1 for it in encoded if a <= it < b) for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    ("tablet", "keys"),
    [
        (stores(active=range(1000)), range(1000)),
        (stores(passive=[range(500)], active=range(500, 1000)), range(1000)),
        (stores(passive=[range(0, 1000, 2)], active=range(1, 1000, 2)), range(1000)),
        (stores([range(1000)]), range(1000)),
        (stores([range(1000)], block_rows=7), range(1000)),
        (stores([range(1000)], block_rows=1000), range(1000)),
        (stores([range(300), range(300, 700)], [range(700, 900)], range(900, 1000)), range(1000)),
    ],
)
@pytest.mark.parametrize("count", [1000, 999, 500, 250, 90])
def test_parts_are_about_equal(tablet: Stores, keys: range, count: int) -> None:
    found = split(tablet, ask(count))
    counts = parts(keys, found, 0, 1000)
    least = -(-1000 // count)
    assert least <= len(counts) <= least + 1
    assert max(counts) <= 1.25 * -(-1000 // least)
    assert min(counts) >= 0.5 * 1000 // least
    assert split(tablet, ask(count)) == found, "asking changes nothing"


def test_a_row_in_two_layers_counts_in_both() -> None:
    tablet = stores([range(1000)], active=range(1000))
    assert split(tablet, ask(2000)).keys == ()
    assert parts(range(1000), split(tablet, ask(1000)), 0, 1000) == [500, 500]


def test_only_the_range_is_looked_at() -> None:
    tablet = stores([range(1000)], active=range(1000, 2000))
    for lower, upper in ((200, 600), (250, 251), (900, 1300), (1500, 2000)):
        found = split(tablet, ask(100, key(lower), key(upper)))
        counts = parts(range(2000), found, lower, upper)
        assert max(counts) <= 150
        assert len(counts) <= 1.5 * (upper - lower) / 100 + 1
    assert split(tablet, ask(10, key(600), key(200))).keys == ()
    assert split(tablet, ask(10, key(5000), KEY_MAX)).keys == ()


def test_a_chunk_of_which_the_tablet_has_a_part_is_cut_there_only() -> None:
    found = Stores(SCHEMA)
    with small_blocks(50):
        chunk = made_of({key(it): [at(10, it)] for it in range(1000)}).open()
    found.attach(AttachedChunk(chunk.info, lower=key(300), upper=key(500)), chunk)
    counts = parts(range(300, 500), split(found, ask(100)), 300, 500)
    assert counts == [100, 100]


def test_an_empty_tablet_is_one_part() -> None:
    assert split(stores(), ask(1)).keys == ()
    assert split(stores(active=[5]), ask(1)).keys == ()


def opened_by(tablet: Stores) -> list[int]:
    """The places of the blocks that are opened from now on."""
    opened: list[int] = []
    view = tablet.chunks[0].view
    assert view is not None
    open_block = view.chunk.block

    def watched(place: int) -> Block:
        opened.append(place)
        return open_block(place)

    view.chunk.block = watched  # type: ignore[method-assign]
    return opened


def test_blocks_are_not_opened_where_they_are_no_longer_than_parts() -> None:
    tablet = stores([range(1000)], block_rows=100)
    opened = opened_by(tablet)
    split(tablet, ask(400))
    assert opened == []
    split(tablet, ask(50))
    assert opened == list(range(10))
    many = stores([range(1000)], block_rows=10)
    opened = opened_by(many)
    found = split(many, ask(2))
    assert len(opened) == BLOCKS_OPENED_MAX
    assert max(parts(range(1000), found, 0, 1000)) == 10, "the others are cut by blocks"


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = split(stores(active=range(3 * CUTS_MAX)), ask(1))
    assert 0.9 * CUTS_MAX < len(found.keys) <= CUTS_MAX
    monkeypatch.setattr(splitting, "CUTS_MAX", 3)
    assert parts(range(1000), split(stores(active=range(1000)), ask(1)), 0, 1000) == [
        248,
        248,
        248,
        256,
    ]
    long, short = "x" * KEY_BYTES_MAX, "y"
    texts = Stores(TEXTS)
    writes = [(TEXTS.bound_of([it]), 1, (0,)) for it in ("a", long, short)]
    texts.active.apply(writes, Timestamp(20), 10)
    assert split(texts, ask(1)).keys == (TEXTS.bound_of([short]),)


@pytest.mark.parametrize("count", [0, -1, -(1 << 63), (1 << 63) - 1])
def test_any_number_of_rows_is_answered(count: int) -> None:
    found = split(stores(active=range(10)), ask(count))
    assert parts(range(10), found, 0, 10) == ([1] * 10 if count <= 0 else [10])


def test_a_cell_returns_split_keys_and_refuses_a_stale_revision() -> None:
    bench = Bench()
    bench.commit(*[put(number, number) for number in range(10)])
    assert bench.answer(bench.ask(ask(5))) == SplitKeys((bench_key(5),))
    stale = SplitTablet(ATOMIC, Revision(9), KEY_MIN, KEY_MAX, 5)
    reply = bench.answer(bench.ask(stale))
    assert isinstance(reply, Failure)
    assert reply.kind == "tablet_moved"
