"""Bulk loads on a bench: short words for what tests do with them."""

from typing import Any

import pyarrow as pa

from dodona.types import MAX_TIMESTAMP, BatchKind, Key, LoadId, LoadMode, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import CommitOne, Prepare, Publication, TabletModifications
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import CloseLoad, LoadSealed, OpenLoad, SealLoad, StageArrow, Staged
from dodona_wire.rows.arrow import arrow_schema, stream_of
from unit.tablets.cells import ATOMIC, REVISION, SCHEMA, Bench

COLUMNS: dict[BatchKind, tuple[str, ...]] = {
    "write": ("id", "a", "b"),
    "update": ("id", "a"),
    "delete": ("id",),
}
LEASE_MS = 60_000


def batch(kind: BatchKind, rows: dict[int, int | None]) -> bytes:
    """Rows of these ids, with these values of `a`."""
    fields = arrow_schema(SCHEMA)
    schema = pa.schema([fields.field(name) for name in COLUMNS[kind]])
    values = [{"id": number, "a": a, "b": None} for number, a in rows.items()]
    picked = [{name: row[name] for name in schema.names} for row in values]
    return stream_of(pa.RecordBatch.from_pylist(picked, schema=schema))


class Loading:
    """One load into the atomic tablet of each cell of a bench."""

    def __init__(
        self, bench: Bench, mode: LoadMode = "upsert", *, overwrites: bool = False
    ) -> None:
        self.bench = bench
        self.mode: LoadMode = mode
        self.id = LoadId(bench.timestamp())
        self.since = MAX_TIMESTAMP if overwrites else Timestamp(self.id)
        self.sequence = 0
        self.sealed: dict[int, LoadSealed] = {}
        self.erased: tuple[tuple[Key, Key], ...] = ()
        for cell in bench.nodes:
            self.open(cell)

    def open(self, cell: int = 0) -> Reply | None:
        request = OpenLoad(self.id, "full", LEASE_MS, Timestamp(self.id), (ATOMIC,))
        return self.ask(request, cell)

    def ask(self, request: Any, cell: int = 0) -> Reply | None:
        return self.bench.answer(self.bench.ask(request, cell))

    def request(self, kind: BatchKind, rows: dict[int, int | None]) -> StageArrow:
        self.sequence += 1
        part = (0, 0, 0, self.sequence)
        return StageArrow(ATOMIC, REVISION, self.id, part, kind, batch(kind, rows))

    def stage(self, rows: dict[int, int | None], cell: int = 0, kind: BatchKind = "write") -> int:
        """→ the number of the chunk."""
        reply = self.ask(self.request(kind, rows), cell)
        assert isinstance(reply, Staged), reply
        return reply.chunk

    def seal(self, *chunks: int, cell: int = 0) -> LoadSealed:
        reply = self.try_seal(*chunks, cell=cell)
        assert isinstance(reply, LoadSealed), reply
        return reply

    def seal_request(self, *chunks: int) -> SealLoad:
        return SealLoad(ATOMIC, REVISION, self.id, chunks, self.mode, self.since, self.erased)

    def try_seal(self, *chunks: int, cell: int = 0) -> Reply | None:
        reply = self.ask(self.seal_request(*chunks), cell)
        if isinstance(reply, LoadSealed):
            self.sealed[cell] = reply
        return reply

    def bring(self, rows: dict[int, int | None], cell: int = 0, kind: BatchKind = "write") -> None:
        """Stage and seal."""
        self.seal(self.stage(rows, cell, kind), cell=cell)

    def modifications(self, cell: int = 0) -> tuple[TabletModifications, ...]:
        publication = Publication(self.id, self.sealed[cell].chunks, self.erased)
        return (TabletModifications(ATOMIC, REVISION, (), publication=publication),)

    def publish(self, start: TransactionId | None = None, cell: int = 0) -> Reply | None:
        """In one cell; the oracle answers."""
        route = self.ask_publish(start, cell)
        self.bench.answer_oracle()
        return self.bench.answer(route)

    def ask_publish(self, start: TransactionId | None = None, cell: int = 0) -> object:
        """As `publish`, as far as the question to the oracle."""
        body = CommitOne(start or self.bench.begin(), self.modifications(cell))
        return self.bench.ask(body, cell)

    def prepare(self, start: TransactionId, cell: int) -> object:
        cells = tuple(sorted(self.bench.nodes))
        return self.bench.ask(Prepare(start, cells, self.modifications(cell)), cell)

    def close(self, cell: int = 0) -> Reply | None:
        return self.ask(CloseLoad(self.id), cell)


def failure(reply: Reply | None) -> Failure:
    assert isinstance(reply, Failure), reply
    return reply
