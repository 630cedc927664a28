"""The protocols of a local copy: what a refresh asks, and what it leaves after a failure."""

import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import dodona
import dodona.aio
from conformance.tables import PLAIN
from dodona.errors import RowBlocked, SnapshotTooOld
from dodona_wire.messages.data import GenerateTimestamps, Lookup, Scan, ScanVersions

ROW = {"k": 1, "v": 1}


class Watched:
    """A database whose requests are seen, some of which fail."""

    def __init__(self, db: dodona.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: list[type] = []
        self.fails: dict[type, Exception] = {}
        run = db._run

        def watching(protocol: Any, timeout_ms: int | None = None) -> Any:
            return run(self._seen(protocol), timeout_ms)

        monkeypatch.setattr(db, "_run", watching)

    def _seen(self, protocol: Any) -> Any:
        replies: Any = None
        error: Exception | None = None
        while True:
            try:
                step = protocol.send(replies) if error is None else protocol.throw(error)
            except StopIteration as stop:
                return stop.value
            kinds = [type(body) for _, body in getattr(step, "requests", ())]
            self.kinds += kinds
            failing = [it for it in kinds if it in self.fails]
            error = self.fails.pop(failing[0]) if failing else None
            if error is None:
                replies = yield step

    def asked(self) -> list[type]:
        kinds, self.kinds = self.kinds, []
        return kinds


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with dodona.open(tmp_path / "db") as client:
        client.create_table("//t", PLAIN, mount=True)
        client.insert_rows("//t", [ROW])
        yield client


def test_a_refresh_asks_for_changes_and_reads_changed_rows_only(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(db, monkeypatch)
    copy = db.follow("//t")
    assert watched.asked() == [GenerateTimestamps, Scan]
    copy.refresh()
    assert watched.asked() == [GenerateTimestamps, ScanVersions]
    db.insert_rows("//t", [{"k": 2, "v": 2}])
    watched.asked()
    copy.refresh()
    assert watched.asked() == [GenerateTimestamps, ScanVersions, Lookup]
    copy.refresh(max_age_ms=3_600_000)
    copy.lookup_rows([{"k": 1}])
    copy.select()
    assert watched.asked() == []


@pytest.mark.parametrize("kind", [GenerateTimestamps, ScanVersions, Lookup])
def test_a_refresh_that_fails_changes_nothing(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    watched = Watched(db, monkeypatch)
    copy = db.follow("//t")
    before = copy.timestamp
    db.insert_rows("//t", [{"k": 1, "v": 9}, {"k": 2, "v": 2}])
    watched.fails[kind] = RowBlocked("a row is held")
    with pytest.raises(RowBlocked):
        copy.refresh()
    assert (list(copy.select()), copy.timestamp) == ([ROW], before)
    copy.refresh()
    assert [it["v"] for it in copy.select()] == [9, 2]


@pytest.mark.parametrize("kind", [ScanVersions, Lookup])
def test_a_copy_that_is_too_old_is_read_anew(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    watched = Watched(db, monkeypatch)
    copy = db.follow("//t")
    db.insert_rows("//t", [{"k": 2, "v": 2}])
    watched.asked()
    watched.fails[kind] = SnapshotTooOld("versions are gone")
    copy.refresh()
    assert watched.asked()[-1] is Scan
    assert [it["k"] for it in copy.select()] == [1, 2]


def test_a_caller_may_change_what_it_read(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "any") as db:
        schema = [PLAIN[0], {"name": "v", "type": "any"}, {"name": "l", "type": "list<int64>"}]
        db.create_table("//any", schema, mount=True)
        db.insert_rows("//any", [{"k": 1, "v": {"a": [1]}, "l": [1]}])
        copy = db.follow("//any")
        for row in (copy.lookup_rows([{"k": 1}])[0], copy.select()[0]):
            row["v"]["a"].append(2)
            row["l"].append(2)
        expected = [{"k": 1, "v": {"a": [1]}, "l": [1]}]
        assert copy.lookup_rows([{"k": 1}]) == list(copy.select()) == expected


def test_keys_of_all_kinds_come_by_the_feed(tmp_path: Path) -> None:
    kinds = {
        "string": b"\xff",
        "utf8": "é",
        "uint64": 2**64 - 1,
        "double": -0.5,
        "boolean": True,
        "date": date(2026, 1, 2),
        "decimal(10,2)": Decimal("1.50"),
        "uuid": UUID(int=7),
    }
    with dodona.open(tmp_path / "db") as db:
        for number, (kind, key) in enumerate(kinds.items()):
            path = f"//t{number}"
            for order in ("ascending", "descending"):
                columns = [
                    {
                        "name": "h",
                        "type": "uint64",
                        "sort_order": "ascending",
                        "expression": "farm_hash(k) % 7",
                    },
                    {"name": "k", "type": kind, "sort_order": order},
                    {"name": "v", "type": "int64"},
                ]
                hashed = kind in ("string", "utf8", "uint64", "boolean")
                db.create_table(f"{path}{order}", columns if hashed else columns[1:], mount=True)
                copy = db.follow(f"{path}{order}")
                for v in (1, 2):
                    db.insert_rows(copy.path, [{"k": key, "v": v}, {"k": None, "v": v}])
                    copy.refresh()
                    assert copy.lookup_rows([{"k": key}], ["v"]) == [{"v": v}], kind
                    assert list(copy.select()) == list(db.select(copy.path))
                db.delete_rows(copy.path, [{"k": key}])
                copy.refresh()
                assert [it["k"] for it in copy.select()] == [None]


def test_a_copy_belongs_to_its_process(db: dodona.Client) -> None:
    with pytest.raises(TypeError, match="follow the table in each process"):
        pickle.dumps(db.follow("//t"))


@pytest.mark.anyio
async def test_asyncio_has_copies(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", PLAIN, mount=True)
        copy = await db.follow("//t")
        await db.insert_rows("//t", [ROW])
        await copy.refresh()
        assert copy.lookup_rows([{"k": 1}]) == [ROW]
        assert list(copy.select()) == [ROW]
        assert repr(copy) == f"<dodona.aio.AsyncLocalCopy //t at {copy.timestamp}, 1 rows>"
        assert await copy.reload() == copy.timestamp


class Hurt(dict[Any, Any]):
    """The rows of a copy, which a signal interrupts at the first deletion."""

    is_hurt = False

    def pop(self, *given: Any) -> Any:
        if not self.is_hurt:
            self.is_hurt = True
            raise KeyboardInterrupt
        return super().pop(*given)


def test_a_refresh_that_is_interrupted_amid_its_changes_is_finished(db: dodona.Client) -> None:
    copy = db.follow("//t")
    db.delete_rows("//t", [{"k": 1}])
    db.insert_rows("//t", [{"k": 2, "v": 2}])
    state = copy._rows._now
    state.rows = Hurt(state.rows)
    with pytest.raises(KeyboardInterrupt):
        copy.refresh()
    assert list(copy.select()) == [{"k": 2, "v": 2}]
    assert list(db.select("//t", timestamp=copy.timestamp)) == [{"k": 2, "v": 2}]


def test_many_versions_of_a_row_are_not_read_one_by_one(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona._core.reading.local_rows.VERSIONS_MAX", 3)
    watched = Watched(db, monkeypatch)
    copy = db.follow("//t")
    for v in range(4):
        db.insert_rows("//t", [{"k": 1, "v": v}])
    copy.refresh()
    assert watched.asked()[-1] is Scan
    assert list(copy.select()) == [{"k": 1, "v": 3}]


@pytest.mark.parametrize("second", ["refresh", "reload"])
def test_a_refresh_that_ends_late_takes_nothing_back(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """As with asyncio, where several tasks may refresh a copy."""
    copy = db.follow("//t")
    db.insert_rows("//t", [{"k": 1, "v": 2}])
    rows, drive = copy._rows, db._run

    def first() -> Any:
        protocol = rows.refresh(0)
        replies: Any = None
        while True:
            try:
                step = protocol.send(replies)
            except StopIteration as stop:
                return stop.value
            if any(isinstance(body, Lookup) for _, body in getattr(step, "requests", ())):
                replies = yield step
                db.insert_rows("//t", [{"k": 1, "v": 3}, {"k": 2, "v": 3}])
                drive(rows.reload() if second == "reload" else rows.refresh(0), None)
            else:
                replies = yield step

    at = drive(first(), None)
    assert at == copy.timestamp
    assert list(copy.select()) == [{"k": 1, "v": 3}, {"k": 2, "v": 3}]
    assert list(db.select("//t", timestamp=copy.timestamp)) == list(copy.select())
