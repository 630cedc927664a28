"""What a cell or a master writes to its disk, drawn: groups of the records that its core appends.

Owns: the drawing. The records come from real cores that are asked for this and that, so that they
make sense to whoever replays them. A seed has one story, always the same. Imports no files.
"""

import functools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from dodona.types import CellId, Now, Timestamp, TransactionId
from dodona_oracle.core import records as master_records
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_tablets.core import records as cell_records
from dodona_wire.cores.effects import Append
from dodona_wire.messages.catalog import CatalogRequest
from dodona_wire.messages.data import GenerateTimestamps, WriteNonAtomic
from dodona_wire.messages.tree import CreateDirectory, RemoveNode, SetNode
from unit.oracle.realm import create
from unit.tablets.cells import NON_ATOMIC, REVISION, Bench, put

STEPS: Final = 30
GROUP_RECORDS_MAX: Final = 6
TEXT_BYTES: Final = (0, 10, 10, 10, 300, 5_000)
"""Of a row's text: a page has 4,096, and what is longer than half of one gets pages of its own."""
LONG_TEXT_BYTES: Final = 200_000
"""Now and then: more than the room that is made ahead of a log's end."""
KEYS: Final = 40
MASTER_SETTINGS: Final = AllocatorSettings(window_us=50_000, renew_us=25_000)

CellGroups = tuple[tuple[cell_records.Record, ...], ...]
MasterGroups = tuple[tuple[master_records.Record, ...], ...]


@functools.lru_cache(maxsize=4)
def cell_groups(seed: int) -> CellGroups:
    """A cell's life from its joining: commits, prepares with what became of them, rows without
    atomicity, aborts, and the mounts before all that."""
    random = Random(seed)
    bench = Bench(2)
    for _ in range(STEPS):
        random.choice(_CELL_STEPS)(bench, random)
    bench.settle()
    return tuple(map(tuple, _in_groups(bench.logs[CellId(0)], random)))


def _row(random: Random) -> tuple[Any, ...]:
    length = LONG_TEXT_BYTES if random.random() < 0.02 else random.choice(TEXT_BYTES)
    text = "".join(random.choices("abcdefgh", k=min(length, 100))) * (-(-length // 100))
    return put(random.randrange(KEYS), random.randrange(1 << 40), text[:length])


def _commit(bench: Bench, random: Random) -> None:
    rows = {row[0]: row for row in (_row(random) for _ in range(random.randint(1, 5)))}
    bench.commit_one(bench.begin(), *rows.values())
    bench.answer_oracle()


def _prepare(bench: Bench, random: Random) -> None:
    start = bench.begin()
    routes = [bench.prepare(start, _row(random), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    answers = [bench.answer(route) for route in routes]
    stamps = [getattr(it, "timestamp", None) for it in answers]
    if random.random() < 0.2:
        return  # the client vanishes: it stays prepared
    is_commit = None not in stamps and random.random() < 0.7
    at = max(it for it in stamps if it is not None) if is_commit else None
    bench.decide(TransactionId(start), at)
    bench.settle()


def _write(bench: Bench, random: Random) -> None:
    rows = {row[0]: row for row in (_row(random) for _ in range(random.randint(1, 20)))}
    writes = tuple(rows.values())
    bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, writes))


def _pass_time(bench: Bench, random: Random) -> None:
    bench.pass_time(random.choice((0.2, 1.0)))
    bench.settle()


_CELL_STEPS: Final[Sequence[Callable[[Bench, Random], None]]] = (
    _commit, _commit, _commit, _prepare, _prepare, _write, _pass_time,
)  # fmt: skip


@functools.lru_cache(maxsize=4)
def master_groups(seed: int) -> MasterGroups:
    """A master's life: ceilings, and a tree of directories and tables that comes and goes."""
    random = Random(seed)
    now = Now(1_000_000, 1_700_000_000_000_000)
    core = MasterCore.recover([], now, MASTER_SETTINGS)
    appended: list[master_records.Record] = []
    for _ in range(STEPS):
        now = Now(now.instant_us + 30_000, now.unix_us + 30_000)
        for request in _master_requests(random):
            core.handle(None, request, now)
        core.tick(now)
        for effect in core.take_effects():
            if isinstance(effect, Append):
                appended.append(effect.record)
                core.handle_durable(effect.record, now)
    return tuple(map(tuple, _in_groups(appended, random)))


def _master_requests(random: Random) -> list[GenerateTimestamps | CatalogRequest]:
    path = f"//d{random.randrange(3)}/n{random.randrange(6)}"
    value = b"\xa1x" if random.random() < 0.9 else b"\xc6\x00\x00\x20\x00" + bytes(8192)
    tree: list[CatalogRequest] = [
        create(path, tablet_count=2),
        CreateDirectory(path, is_recursive=True),
        RemoveNode(path),
        SetNode(f"{path}/@note", value),
    ]
    count = random.choice((1, 1000))
    return [GenerateTimestamps(count), *random.sample(tree, random.randint(0, 2))]


def _in_groups(records: Sequence[Any], random: Random) -> list[Sequence[Any]]:
    groups: list[Sequence[Any]] = []
    at = 0
    while at < len(records):
        count = random.randint(1, GROUP_RECORDS_MAX)
        groups.append(records[at : at + count])
        at += count
    return groups
