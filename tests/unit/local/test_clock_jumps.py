"""A clock that is wrong for a moment: timestamps do not go there, and all goes on once it is right.

Embedded, where the oracle, the node and the client have one clock.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import dodona
from dodona.errors import InvalidRequest, Unavailable
from dodona.types import Timestamp, unix_us_from_timestamp
from dodona_local.checking import check_folder

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
DAY_S = 86_400
SECOND_US = 1_000_000
JUMPS_S = {"ten years": 3650 * DAY_S, "past 2106": 100 * 366 * DAY_S}

Set = Callable[[int], None]


@pytest.fixture
def set_clock() -> Iterator[Set]:
    """So many seconds ahead of this machine's."""
    ahead_ns = 0
    real = time.time_ns

    def set_ahead(seconds: int) -> None:
        nonlocal ahead_ns
        ahead_ns = seconds * 1_000_000_000

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + ahead_ns)
        yield set_ahead


@pytest.fixture
def folder(tmp_path: Path, set_clock: Set) -> Path:
    set_clock(0)
    with dodona.open(tmp_path / "db") as db:
        db.create_table("//full", schema=SCHEMA, mount=True)
        db.create_table("//none", schema=SCHEMA, atomicity="none", mount=True)
        for path in ("//full", "//none"):
            db.insert_rows(path, [{"id": 1, "value": 1}])
    return tmp_path / "db"


def is_close(timestamp: int) -> bool:
    return (
        abs(unix_us_from_timestamp(Timestamp(timestamp)) - time.time_ns() // 1000) < 10 * SECOND_US
    )


@pytest.mark.slow("leases that end in real time")
@pytest.mark.parametrize("jump", JUMPS_S)
def test_a_jump_under_an_open_database_is_refused_and_passes(
    folder: Path, set_clock: Set, jump: str
) -> None:
    with dodona.open(folder) as db:
        set_clock(JUMPS_S[jump])
        with pytest.raises(Unavailable, match="no timestamps are given out: the clock"):
            db.generate_timestamp()
        set_clock(0)
        assert is_close(db.generate_timestamp())
        db.insert_rows("//full", [{"id": 2, "value": 2}])
    with dodona.open(folder) as db:
        assert [it["id"] for it in db.select("//full")] == [1, 2]
        assert is_close(db.generate_timestamp())
    assert not any(part.damages for part in check_folder(folder))


@pytest.mark.parametrize("jump", JUMPS_S)
def test_a_database_is_not_opened_by_a_clock_that_is_wrong(
    folder: Path, set_clock: Set, jump: str
) -> None:
    set_clock(JUMPS_S[jump])
    with pytest.raises(Unavailable, match=r"no timestamps are given out: .*set the clock right"):
        dodona.open(folder)
    set_clock(0)
    with dodona.open(folder) as db:
        assert is_close(db.generate_timestamp())
        assert [it["id"] for it in db.select("//full")] == [1]


def test_a_database_closed_for_years_opens_only_if_the_user_confirms_the_days(
    folder: Path, set_clock: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is right, and nobody but its user can know. Nothing else opens an embedded one."""
    set_clock(800 * DAY_S)
    with pytest.raises(
        Unavailable, match=r"is (799|800) days ahead .*\(DODONA_\w+=80[01]\)"
    ) as refused:
        dodona.open(folder)
    name, _, days = refused.value.message.partition("(")[2].partition(")")[0].partition("=")
    for wrong in ("", "0", "two", "1" * 5000):
        monkeypatch.setenv(name, wrong)
        with pytest.raises(InvalidRequest, match=rf"{name} takes a number of days"):
            dodona.open(folder)
    monkeypatch.setenv(name, days)
    with dodona.open(folder) as db:
        db.insert_rows("//full", [{"id": 2, "value": 2}])
    monkeypatch.delenv(name)
    with dodona.open(folder) as db:
        assert is_close(db.generate_timestamp())
        assert [it["id"] for it in db.select("//full")] == [1, 2]


def test_a_machine_that_slept_is_believed(
    folder: Path, set_clock: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monotonic clock that stands still meanwhile makes a jump of that."""
    slept_ns = 30 * 3600 * 1_000_000_000
    with dodona.open(folder) as db:
        read = time.clock_gettime_ns
        monkeypatch.setattr(
            time,
            "clock_gettime_ns",
            lambda clock: read(clock) + slept_ns * (clock == time.CLOCK_BOOTTIME),
        )
        set_clock(30 * 3600)
        assert is_close(db.generate_timestamp())
        db.insert_rows("//full", [{"id": 2, "value": 2}])


def test_with_timestamps_ahead_of_the_clock_writes_work_and_check_reports_the_gap(
    folder: Path, set_clock: Set
) -> None:
    """At a start a clock may be months ahead of the last timestamp: nobody can know."""
    set_clock(100 * DAY_S)
    with dodona.open(folder) as db:
        for path in ("//full", "//none"):
            db.insert_rows(path, [{"id": 2, "value": 2}])
    set_clock(0)
    (damage,) = [it for part in check_folder(folder) for it in part.damages]
    assert "timestamps are 100.0 days ahead of this machine's clock" in str(damage)
    with dodona.open(folder) as db:
        for path in ("//full", "//none"):
            db.insert_rows(path, [{"id": 2, "value": 3}, {"id": 3, "value": 3}])
            found = {it["id"]: it["value"] for it in db.select(path)}
            assert found == {1: 1, 2: 3, 3: 3}, "the last write wins"
        with db.loads.begin(["//none"], atomicity="none") as load:
            load.write("//none", pa.table({"id": [4], "value": [4]}))
        assert {it["id"] for it in db.select("//none")} == {1, 2, 3, 4}
