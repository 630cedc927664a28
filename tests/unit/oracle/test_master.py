"""The master core: which answers wait for the disk, and what a crash can never take back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.errors import DataCorrupted
from dodona.schema import Column
from dodona.types import KEY_MIN, Now, Timestamp, TransactionId
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import (
    CEILING,
    ORACLE,
    Group,
    Item,
    Put,
    Record,
    changes_of,
    put_ceiling,
)
from dodona_wire.cores.effects import Append, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import CreateTable, Done, GetTable, Table
from dodona_wire.messages.data import AskOutcome, GenerateTimestamps, TimestampRange
from dodona_wire.messages.tree import (
    BeginTreeTransaction,
    CommitTreeTransaction,
    CreateDirectory,
    NodeExists,
    NodeValue,
)
from suite.levels import examples

HOUR_US = 3_600_000_000
NOON_US = 1_700_000_000_000_000
NOW = Now(1000, NOON_US)
CREATE = CreateTable(
    "//a",
    (Column("k", "int64", sort_order="ascending"), Column("v", "any")),
    "full",
    (KEY_MIN,),
)


class Disk:
    """What is durable, as the store keeps it."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, bytes], bytes] = {}

    def write(self, record: Record) -> None:
        for change in changes_of(record):
            if isinstance(change, Put):
                self.values[change.bucket, change.key] = change.value
            else:
                self.values.pop((change.bucket, change.key), None)

    def items(self) -> list[Item]:
        return [(bucket, key, value) for (bucket, key), value in self.values.items()]


def settle(core: MasterCore, disk: Disk, now: Now = NOW) -> list[Any]:
    """Carry out everything with a disk that answers at once; the replies."""
    replies = []
    while effects := core.take_effects():
        for effect in effects:
            if isinstance(effect, Append):
                disk.write(effect.record)
                core.handle_durable(effect.record, now)
            else:
                assert isinstance(effect, ReplyTo | ReplyAtOnce)
                replies.append(effect.body)
    return replies


def recovered(disk: Disk, now: Now = NOW) -> MasterCore:
    core = MasterCore.recover(disk.items(), now)
    assert settle(core, disk, now) == []
    return core


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_a_timestamp_below_the_durable_ceiling_is_sent_immediately() -> None:
    core = recovered(Disk())
    core.handle("route", GenerateTimestamps(3), NOW)
    (effect,) = core.take_effects()
    assert isinstance(effect, ReplyAtOnce)
    assert effect.route == "route"
    assert isinstance(effect.body, TimestampRange)
    assert effect.body.count == 3


def test_a_timestamp_above_the_ceiling_waits_until_the_new_ceiling_is_durable() -> None:
    core = recovered(Disk())
    later = Now(2_000_000, NOON_US + 2_000_000)
    core.handle("a", GenerateTimestamps(1), later)
    core.handle("b", GenerateTimestamps(1), later)
    first = core.take_effects()
    assert kinds(first) == ["Append", "ReplyTo", "ReplyTo"]
    assert isinstance(first[0], Append)
    core.handle_durable(first[0].record, later)
    core.handle("c", GenerateTimestamps(1), later)
    assert kinds(core.take_effects()) == ["ReplyAtOnce"]


def test_a_start_appends_a_ceiling_before_anybody_asks() -> None:
    core = MasterCore.recover([], NOW)
    effect, *_ = core.take_effects()
    assert isinstance(effect, Append)
    assert (effect.record.bucket, effect.record.key) == (ORACLE, CEILING)


def test_the_ceiling_is_renewed_by_the_clock() -> None:
    disk = Disk()
    core = recovered(disk)
    core.handle("route", GenerateTimestamps(1), NOW)
    settle(core, disk)
    deadline_us = core.next_deadline()
    assert deadline_us is not None
    core.tick(Now(deadline_us, NOON_US + deadline_us))
    assert kinds(core.take_effects()) == ["Append"]
    assert core.next_deadline() is None  # until it is durable


def test_a_refusal_gives_the_reason_that_no_timestamp_is_given_out() -> None:
    core = recovered(Disk())
    core.handle("a", GenerateTimestamps(1), NOW)
    core.take_effects()
    wrong = Now(NOW.instant_us + 1, NOON_US + 25 * HOUR_US)
    core.handle("b", GenerateTimestamps(1), wrong)
    (effect,) = core.take_effects()
    assert isinstance(effect, ReplyAtOnce)
    assert effect.body == Failure("unavailable", str(core.why_not_ready(wrong)))
    assert "clock" in effect.body.message


@pytest.mark.parametrize("count", [0, -5, 1_000_001, 1 << 62])
def test_a_count_out_of_bounds_is_refused(count: int) -> None:
    core = recovered(Disk())
    before = core.statistics()
    core.handle("route", GenerateTimestamps(count), NOW)
    (effect,) = core.take_effects()
    assert isinstance(effect, ReplyAtOnce)
    assert isinstance(effect.body, Failure)
    assert effect.body.kind == "invalid_request"
    assert core.statistics().next_unused == before.next_unused


def test_a_request_for_another_server_is_refused() -> None:
    core = recovered(Disk())
    core.handle("route", AskOutcome(TransactionId(5)), NOW)  # type: ignore[arg-type]
    (effect,) = core.take_effects()
    assert isinstance(effect, ReplyTo)
    assert isinstance(effect.body, Failure)
    assert effect.body.kind == "invalid_request"
    assert "AskOutcome" in effect.body.message


def test_a_catalog_answer_waits_until_the_change_that_it_shows_is_durable() -> None:
    core = recovered(Disk())
    core.handle("a", CREATE, NOW)
    core.handle("b", GetTable("//a"), NOW)
    assert kinds(core.take_effects()) == ["Append", "ReplyTo", "ReplyTo"]


def test_a_request_is_one_record_so_each_prefix_of_the_records_is_a_valid_state() -> None:
    core = recovered(Disk())
    core.handle("a", CREATE, NOW)
    (record,) = [effect.record for effect in core.take_effects() if isinstance(effect, Append)]
    assert isinstance(record, Group)
    assert {change.bucket for change in record.changes} == {"counters", "nodes", "tables"}
    for records in ([], [record]):
        disk = Disk()
        for each in records:
            disk.write(each)
        again = recovered(disk)
        again.handle("b", GetTable("//a"), NOW)
        (reply,) = settle(again, disk)
        assert isinstance(reply, Table if records else Failure)


def test_no_answer_reports_a_commit_that_a_crash_can_undo() -> None:
    disk = Disk()
    core = recovered(disk)
    core.handle("a", BeginTreeTransaction(5000), NOW)
    (begun,) = settle(core, disk)
    transaction = begun.transaction
    core.handle("b", CreateDirectory("//d", transaction=transaction), NOW)
    core.handle("c", CommitTreeTransaction(transaction), NOW)
    core.handle("d", NodeExists("//d"), NOW)
    effects = core.take_effects()
    assert kinds(effects) == ["Append", "ReplyTo", "Append", "ReplyTo", "ReplyTo"]
    for effect in effects[:2]:  # a crash before the commit is durable
        if isinstance(effect, Append):
            disk.write(effect.record)
    again = recovered(disk)
    again.handle("e", NodeExists("//d"), NOW)
    again.handle("f", NodeExists("//d", transaction), NOW)
    again.handle("g", CommitTreeTransaction(transaction), NOW)
    assert settle(again, disk) == [NodeValue(b"\xc2"), NodeValue(b"\xc3"), Done()]


def test_a_master_transaction_without_pings_ends_at_its_timeout() -> None:
    disk = Disk()
    core = recovered(disk)
    core.handle("a", BeginTreeTransaction(1000), NOW)
    (begun,) = settle(core, disk)
    end_us = NOW.instant_us + 1_000_000
    ticks: list[int] = []
    while len(ticks) < 100 and (deadline_us := core.next_deadline()) is not None:
        ticks.append(min(deadline_us, end_us))
        core.tick(Now(deadline_us, NOON_US + deadline_us))
        settle(core, disk)
        if deadline_us >= end_us:
            break
    assert ticks[-1] == end_us
    later = Now(end_us, NOON_US + end_us)
    core.handle("b", CommitTreeTransaction(begun.transaction), later)
    (reply,) = settle(core, disk, later)
    assert isinstance(reply, Failure)
    assert reply.kind == "transaction_not_found"


def test_a_failure_has_its_kind_message_and_path() -> None:
    disk = Disk()
    core = recovered(disk)
    core.handle("a", GetTable("//nowhere"), NOW)
    assert settle(core, disk) == [
        Failure("table_not_found", "There is no table //nowhere.", {"path": "//nowhere"})
    ]


def test_stored_items_that_are_not_understood_are_refused_loudly() -> None:
    with pytest.raises(DataCorrupted, match="unknown kind"):
        MasterCore.recover([("tables of another kind", b"1", b"")], NOW)
    with pytest.raises(DataCorrupted, match="StoredTable"):
        MasterCore.recover([("tables", b"1", b"\xc1")], NOW)
    with pytest.raises(DataCorrupted, match="8 bytes"):
        MasterCore.recover([("oracle", b"ceiling", b"\x01")], NOW)


def test_statistics_count_what_was_done() -> None:
    disk = Disk()
    core = recovered(disk)
    core.handle("a", GenerateTimestamps(7), NOW)
    core.handle("b", CREATE, NOW)
    settle(core, disk)
    statistics = core.statistics()
    assert (statistics.request_count, statistics.timestamp_count) == (2, 7)
    assert statistics.catalog.table_count == 1
    assert statistics.next_unused <= statistics.ceiling_durable
    assert statistics.ceiling_count == 1, "the one of the start"
    core.handle("c", GenerateTimestamps(1), Now(2_000_000, NOON_US + 2_000_000))
    assert core.statistics().ceiling_count == 2


# So narrow that most schedules run into the ceiling.
NARROW = AllocatorSettings(window_us=2000, renew_us=1000, margin_count=1_000_000)


class World:
    """A master, its disk, and callers who check what they are told.

    Appends become durable in order, a few at a time, whenever the schedule says so; effects obey
    the one law. A crash loses what is not durable, or not yet known to be (the disk may have kept
    some of it), and nothing that waited for it is ever told.
    """

    def __init__(self) -> None:
        self.disk = Disk()
        self.instant_us = 0
        self.unix_us = NOON_US
        self.waiting: list[Effect] = []
        self.told_max = 0
        self.told_count = 0
        self.request_count = 0
        self.request_floors: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.core = MasterCore.recover(self.disk.items(), self.now(), NARROW)
        self.gather()

    def now(self) -> Now:
        return Now(self.instant_us, self.unix_us)

    def gather(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, ReplyAtOnce) or (
                isinstance(effect, ReplyTo) and not self.waiting
            ):
                self.tell(effect)
            else:
                self.waiting.append(effect)

    def tell(self, effect: ReplyTo | ReplyAtOnce) -> None:
        body = effect.body
        assert isinstance(body, TimestampRange)
        # Larger than all that anybody held when this was asked for: in particular, a fresh one.
        assert body.first > self.request_floors.pop(effect.route)
        self.told_max = max(self.told_max, body.first + body.count - 1)
        self.told_count += body.count

    def ask(self, count: int) -> None:
        self.request_count += 1
        route = self.request_count
        self.request_floors[route] = self.told_max
        self.core.handle(route, GenerateTimestamps(count), self.now())
        self.gather()

    def flush(self, record_count: int) -> None:
        """The disk finishes some appends; what waited only for them is told."""
        while self.waiting:
            effect = self.waiting[0]
            if isinstance(effect, Append):
                if record_count == 0:
                    break
                record_count -= 1
                self.disk.write(effect.record)
                self.core.handle_durable(effect.record, self.now())
            else:
                assert isinstance(effect, ReplyTo)
                self.tell(effect)
            self.waiting.pop(0)
        self.gather()

    def pass_time(self, duration_us: int) -> None:
        self.instant_us += duration_us
        self.unix_us += duration_us
        deadline_us = self.core.next_deadline()
        if deadline_us is not None and deadline_us <= self.instant_us:
            self.core.tick(self.now())
            self.gather()

    def step_clock(self, step_us: int) -> None:
        self.unix_us = max(0, self.unix_us + step_us)

    def crash(self, kept_count: int) -> None:
        """The process dies; the disk kept the first few of the appends it was working on."""
        records = [effect.record for effect in self.waiting if isinstance(effect, Append)]
        for record in records[:kept_count]:
            self.disk.write(record)
        self.waiting.clear()
        self.request_floors.clear()
        self.start()


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([1, 2, 100, 999_999, 1_000_000])),
    st.tuples(st.just("flush"), st.integers(0, 3)),
    st.tuples(st.just("pass_time"), st.sampled_from([1, 50, 1000, 150_000, 210_000, 2_000_000])),
    st.tuples(st.just("step_clock"), st.sampled_from([-HOUR_US, HOUR_US, -1, 1, -500_000])),
    st.tuples(st.just("crash"), st.integers(0, 2)),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_no_schedule_gives_a_duplicate_or_a_regression(steps: list[tuple[str, int]]) -> None:
    world = World()
    for name, argument in steps:
        getattr(world, name)(argument)
    told_before = world.told_count
    world.flush(100)
    world.ask(1)  # and whatever happened, the next caller is served
    world.flush(100)
    assert world.told_count > told_before


def test_the_schedules_above_would_notice_a_ceiling_that_was_never_written() -> None:
    """The test's own test: a disk that forgets ceilings makes a restart repeat timestamps."""
    world = World()
    world.flush(1)
    world.ask(1_000_000)
    world.disk.write(put_ceiling(Timestamp(0)))
    world.crash(0)
    world.flush(1)
    with pytest.raises(AssertionError):
        world.ask(1)
