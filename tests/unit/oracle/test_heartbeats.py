"""Heartbeats whose answer waits for news: until when, and who else brings it.

A report of the same kind elsewhere: GreptimeTeam/greptimedb #8568.
"""

from typing import Any

import pytest

from dodona.schema import Column
from dodona.types import KEY_MIN, NO_CLUSTER, CellId, ClusterId, Now, Revision, TabletId
from dodona_oracle.core.heartbeats import HOLD_MS_MAX
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import Put, Record, changes_of
from dodona_wire.cores.effects import Append, ReplyAtOnce, ReplyTo
from dodona_wire.messages.catalog import (
    Assignment,
    CreateTable,
    Heartbeat,
    MountedTablet,
    MountTable,
)
from dodona_wire.messages.data import GenerateTimestamps

HOLD_MS = 800
COLUMNS = (Column("k", "int64", sort_order="ascending"), Column("v", "any"))


class Bench:
    """A master and what its cells have heard: answers by the sequence of their heartbeat."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.core = MasterCore.recover([], self.now)
        self.cluster: ClusterId = NO_CLUSTER
        self.sequence = 0
        self.answers: dict[Any, Any] = {}
        self.values: dict[tuple[str, bytes], bytes] = {}
        self.ask("clock", GenerateTimestamps(1))

    @property
    def now(self) -> Now:
        return Now(self.now_us, 1_700_000_000_000_000 + self.now_us)

    def ask(self, route: Any, body: Any) -> Any:
        self.core.handle(route, body, self.now)
        self.carry_out()
        return self.answers.get(route)

    def carry_out(self) -> None:
        while effects := self.core.take_effects():
            for effect in effects:
                if isinstance(effect, Append):
                    self.write(effect.record)
                    self.core.handle_durable(effect.record, self.now)
                else:
                    assert isinstance(effect, ReplyTo | ReplyAtOnce)
                    assert effect.route not in self.answers, "one answer each"
                    self.answers[effect.route] = effect.body

    def write(self, record: Record) -> None:
        for change in changes_of(record):
            if isinstance(change, Put):
                self.values[change.bucket, change.key] = change.value
            else:
                self.values.pop((change.bucket, change.key), None)

    def restart(self) -> None:
        items = [(*name, value) for name, value in self.values.items()]
        self.core = MasterCore.recover(items, self.now)
        self.carry_out()

    def beat(self, cell: int = 0, *mounted: MountedTablet, **more: Any) -> tuple[int, Any]:
        """→ the sequence, and the answer if it came at once."""
        self.sequence += 1
        address = more.pop("address", f"http://cell-{cell}")
        more = {"revision": Revision(0), "cluster": self.cluster, **more}
        beat = Heartbeat(CellId(cell), address, mounted, self.sequence, **more)
        return self.sequence, self.ask(self.sequence, beat)

    def join(self, *cells: int) -> None:
        for cell in cells:
            self.cluster = self.beat(cell, cluster=NO_CLUSTER)[1].cluster
            assert self.beat(cell)[1].may_be_short

    def hold(self, cell: int = 0, **more: Any) -> int:
        more = {"is_short": True, "hold_ms": HOLD_MS, **more}
        sequence, answer = self.beat(cell, **more)
        assert answer is None
        return sequence

    def pass_time(self, milliseconds: int) -> None:
        self.now_us += milliseconds * 1000
        self.core.tick(self.now)
        self.carry_out()

    def mount(self) -> None:
        self.ask("create", CreateTable("//a", COLUMNS, "full", (KEY_MIN,)))
        self.ask("mount", MountTable("//a"))


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.join(0, 1)
    return made


def test_an_answer_without_news_is_held_for_the_time_that_the_heartbeat_gives(
    bench: Bench,
) -> None:
    held = bench.hold()
    deadline_us = bench.now_us + HOLD_MS * 1000
    assert bench.core._heartbeats.next_deadline() == deadline_us
    bench.pass_time(HOLD_MS - 1)
    assert held not in bench.answers
    bench.pass_time(1)
    answer = bench.answers[held]
    assert isinstance(answer, Assignment)
    assert (answer.is_short, answer.tablets, answer.sequence) == (True, (), held)
    assert bench.core._heartbeats.next_deadline() is None


def test_the_shortest_hold_time_is_a_millisecond(bench: Bench) -> None:
    held = bench.hold(hold_ms=1)
    bench.pass_time(1)
    assert held in bench.answers


def test_the_master_holds_a_heartbeat_at_most_for_the_maximum_hold_time(bench: Bench) -> None:
    held = bench.hold(hold_ms=60_000)
    bench.pass_time(HOLD_MS_MAX)
    assert held in bench.answers


def test_a_mount_answers_held_heartbeats_behind_the_record_of_the_mount(bench: Bench) -> None:
    held = [bench.hold(0), bench.hold(1)]
    bench.ask("create", CreateTable("//a", COLUMNS, "full", (KEY_MIN,)))
    bench.core.handle("mount", MountTable("//a"), bench.now)
    effects = bench.core.take_effects()
    assert [type(it) for it in effects] == [Append, ReplyTo, ReplyTo, ReplyTo]
    told = {it.route: it.body for it in effects if isinstance(it, ReplyTo)}
    assert told.keys() == {"mount", *held}
    tablets = [it.tablets for it in told.values() if isinstance(it, Assignment)]
    assert sorted(map(len, tablets)) == [0, 1]
    assert not any(it.is_short for it in told.values() if isinstance(it, Assignment))


def test_a_changed_address_of_a_cell_answers_held_heartbeats_immediately(bench: Bench) -> None:
    held = bench.hold(0)
    bench.pass_time(100)
    bench.now_us += 3_000_000  # the other process is taken for dead
    bench.beat(1, address="http://elsewhere")
    assert bench.answers[held].addresses[CellId(1)] == "http://elsewhere"


def test_the_next_heartbeat_of_a_cell_ends_the_wait_of_the_one_before(bench: Bench) -> None:
    first, other = bench.hold(0), bench.hold(1)
    second = bench.hold(0)
    assert first in bench.answers
    assert other not in bench.answers
    assert second not in bench.answers
    _, answer = bench.beat(0, MountedTablet(TabletId(7), Revision(1)))
    assert (answer.is_short, answer.may_be_short) == (False, True)
    assert second in bench.answers


def test_a_full_heartbeat_or_one_without_a_hold_time_is_answered_immediately(bench: Bench) -> None:
    assert bench.beat(0, hold_ms=HOLD_MS)[1] is not None
    assert bench.beat(0, is_short=True)[1].is_short
    bench.mount()
    _, answer = bench.beat(0, is_short=True, hold_ms=HOLD_MS)
    assert not answer.is_short, "its revision is an older one"


def test_a_short_answer_leaves_out_the_tablets(bench: Bench) -> None:
    bench.mount()
    ((cell, full),) = [(it, full) for it in (0, 1) if (full := bench.beat(it)[1]).tablets]
    _, short = bench.beat(cell, is_short=True, revision=full.revision)
    assert (short.is_short, short.tablets) == (True, ())
    _, behind = bench.beat(cell, is_short=True)
    assert (behind.is_short, behind.tablets) == (False, full.tablets)


def test_a_restarted_master_asks_a_cell_for_a_full_heartbeat(bench: Bench) -> None:
    bench.restart()
    _, answer = bench.beat(0, is_short=True, hold_ms=HOLD_MS)
    assert (answer.is_short, answer.may_be_short) == (False, False)
    assert bench.beat(0)[1].may_be_short


def test_a_master_that_stops_holds_no_answer(bench: Bench) -> None:
    held = bench.hold(0)
    bench.core.hold_no_heartbeats(bench.now)
    bench.carry_out()
    assert held in bench.answers
    assert bench.beat(0, is_short=True, hold_ms=HOLD_MS)[1].is_short


def test_an_idle_request_does_not_keep_the_ceiling_rising(bench: Bench) -> None:
    allocator = bench.core._allocator
    bench.pass_time(400)
    assert allocator.next_deadline() is not None
    bench.pass_time(10_000)
    bench.pass_time(10_000)
    assert allocator.next_deadline() is None, "nobody asks any more"
    bench.ask("idle", GenerateTimestamps(1, is_idle=True))
    assert allocator.next_deadline() is None
    assert bench.answers["idle"].count == 1
    bench.ask("busy", GenerateTimestamps(1))
    assert allocator.next_deadline() is not None
