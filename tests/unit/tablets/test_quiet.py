"""A cell where nothing happens: how seldom it ticks, asks and tells, and what ends that.

Reports of the same kind elsewhere: tikv/tikv #5854, cockroachdb/cockroach #122528.
"""

from typing import Any

import pytest

from dodona.types import Revision, TabletId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.mounting import mounting
from dodona_tablets.core.node import TICK_MS
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_wire.cores.effects import AskTimestamps, SendHeartbeat
from dodona_wire.messages.catalog import Assignment
from unit.tablets.cells import CLUSTER, SECOND, Bench, put

LIMITS = CellLimits()
TICKS = "_tick_all"


class Quiet:
    """One cell under a master that answers at once, and that calls it when it wants to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = Bench(limits=LIMITS)
        self.core = self.bench.nodes[next(iter(self.bench.nodes))]
        self.ticks_us: list[int] = []
        self.beats: list[Any] = []
        self.questions: list[bool] = []
        self.answers = True
        tick = type(self.core)._tick_all

        def noted(core: Any, **how: bool) -> None:
            self.ticks_us.append(self.bench.clock_us)
            tick(core, **how)

        monkeypatch.setattr(type(self.core), TICKS, noted)

    def run(self, seconds: float) -> None:
        """Call it as the runtime does: when it says so."""
        end_us = self.bench.clock_us + int(seconds * 1e6)
        while (at_us := max(self.core.next_deadline(), self.bench.clock_us)) < end_us:
            self.bench.oracle += (at_us - self.bench.clock_us) * SECOND // 1_000_000
            self.bench.clock_us = at_us
            self.core.tick(self.bench.now)
            self.carry_out()
            assert len(self.ticks_us) < 100 * seconds + 100, "it never rests"
        self.bench.clock_us = end_us

    def carry_out(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, SendHeartbeat):
                self.beats.append(effect.body)
                if self.answers:
                    self.assign(effect.body)
            elif isinstance(effect, AskTimestamps):
                self.questions.append(effect.is_idle)
                self.core.handle_timestamp(effect.token, self.bench.timestamp(), self.bench.now)

    def assign(self, body: Any, **more: Any) -> None:
        is_short = body.is_short and body.revision == self.bench.revision
        tablets = () if is_short else tuple(self.bench.tables)
        more = {"is_short": is_short, "may_be_short": True, **more}
        told = Assignment(tablets, {}, body.sequence, self.bench.revision, CLUSTER, (), **more)
        self.core.handle_assignment(told, self.bench.now)

    def forget(self) -> None:
        self.ticks_us.clear()
        self.beats.clear()
        self.questions.clear()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Quiet:
    made = Quiet(monkeypatch)
    made.run(5)
    made.forget()
    return made


def test_a_quiet_cell_ticks_once_a_second_and_sends_few_and_short_messages(quiet: Quiet) -> None:
    quiet.run(10)
    assert len(quiet.ticks_us) <= 10_000 / LIMITS.quiet_tick_ms + 1
    assert len(quiet.questions) <= 6
    assert all(quiet.questions), "nobody waits for them"
    assert all(it.is_short and it.mounted == () for it in quiet.beats)
    assert all(it.hold_ms == LIMITS.heartbeat_hold_ms for it in quiet.beats)


def test_an_event_brings_the_next_tick_forward(quiet: Quiet) -> None:
    at_us = quiet.bench.clock_us
    quiet.bench.commit_one(quiet.bench.begin(), put(1, 1))
    quiet.bench.answer_oracle()
    quiet.run(1)
    assert quiet.ticks_us[0] <= at_us + TICK_MS * 1000


def test_a_cell_is_not_quiet_while_a_transaction_is_undecided(quiet: Quiet) -> None:
    """It waits for the oracle here."""
    quiet.bench.commit_one(quiet.bench.begin(), put(1, 1))
    quiet.run(0.95)
    assert len(quiet.ticks_us) >= 900 / TICK_MS


def test_a_quiet_cell_lists_its_tablets_again_only_after_they_changed(quiet: Quiet) -> None:
    quiet.core._mounting.send_heartbeat()
    quiet.carry_out()
    assert not quiet.beats[0].is_short
    assert len(quiet.beats[0].mounted) == 2
    quiet.run(2)
    assert all(it.is_short for it in quiet.beats[1:])


def test_after_news_the_master_has_a_heartbeat_to_hold_without_delay(quiet: Quiet) -> None:
    """Otherwise the next mount would wait until a period is over."""
    quiet.run(2)
    held = quiet.beats[-1]
    quiet.forget()
    quiet.bench.revision = Revision(quiet.bench.revision + 1)
    quiet.assign(held)
    for _ in range(5):  # answers without delay: no time passes
        quiet.carry_out()
        if quiet.beats and quiet.beats[-1].hold_ms:
            break
    assert [(it.is_short, it.hold_ms > 0) for it in quiet.beats] == [(False, False), (True, True)]


def test_a_cell_with_many_tablets_confirms_frequent_news_at_its_period(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full heartbeat names every tablet, so each of many news would cost much."""
    monkeypatch.setattr(mounting, "PROMPT_TABLETS_MAX", 2)
    quiet.run(2)
    held = quiet.beats[-1]
    quiet.bench.clock_us += LIMITS.heartbeat_period_ms * 1000
    for is_first in (True, False):
        quiet.forget()
        quiet.bench.revision = Revision(quiet.bench.revision + 1)
        quiet.assign(held)
        for _ in range(5):  # no time passes
            quiet.carry_out()
        assert [it.is_short for it in quiet.beats] == ([False, True] if is_first else [])
        held = (quiet.beats or [held])[-1]
    quiet.run(LIMITS.heartbeat_period_ms / 1000 + 0.1)
    quiet.carry_out()
    assert [it.is_short for it in quiet.beats] == [False, True]


def test_a_quiet_cell_reports_a_raised_retained_timestamp(quiet: Quiet) -> None:
    tablet = quiet.core.cell.tablets[TabletId(1)]
    quiet.core.cell.raise_retained(tablet, quiet.core.cell.latest)
    quiet.run(2)
    full = [it for it in quiet.beats if not it.is_short]
    assert len(full) == 1
    assert full[0].mounted[0].retained_timestamp == tablet.retained_timestamp


def test_a_cell_sends_a_full_heartbeat_to_a_master_that_does_not_know_the_cell(
    quiet: Quiet,
) -> None:
    quiet.answers = False
    quiet.run(2)
    quiet.assign(quiet.beats[-1], is_short=False, may_be_short=False)
    quiet.forget()
    quiet.answers = True
    quiet.run(3)
    assert [it.is_short for it in quiet.beats[:2]] == [False, True]


def test_while_no_answers_come_none_may_be_held(quiet: Quiet) -> None:
    """Else it would seem to be gone: an answer that is late may be lost as well."""
    quiet.answers = False
    quiet.run(5)
    assert quiet.beats[0].hold_ms
    assert not any(it.hold_ms for it in quiet.beats[1:])
    assert len(quiet.beats) >= 4_000 / LIMITS.heartbeat_period_ms - 1


def test_tablets_with_rows_are_not_looked_at_before_something_is_due(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, looked_at = quiet.bench, []
    bench.commit_one(bench.begin(), put(1, 1))
    bench.answer_oracle()
    quiet.run(90)  # until nobody needs the times of its locks
    is_due = Flushing._is_due

    def noted(flushing: Flushing, tablet: Tablet) -> bool:
        looked_at.append(bench.clock_us)
        return is_due(flushing, tablet)

    monkeypatch.setattr(Flushing, "_is_due", noted)
    quiet.run(30)
    assert looked_at == []
    bench.commit_one(bench.begin(), put(1, 1))
    bench.answer_oracle()
    quiet.run(1)
    assert looked_at


def test_a_quiet_cell_rotates_a_store_when_its_log_is_nearly_full(quiet: Quiet) -> None:
    """The log tells later than the appends what it has."""
    bench = quiet.bench
    bench.commit_one(bench.begin(), put(1, 1))
    bench.answer_oracle()
    quiet.run(90)
    tablet = quiet.core.cell.tablets[TabletId(1)]
    number = tablet.active.number
    quiet.core.note_log(1 << 20, LIMITS.log_fill_ratio_max * 0.99, bench.now)
    quiet.run(2)
    assert tablet.active.number == number + 1


def test_a_quiet_cell_rotates_a_store_after_the_flush_period(quiet: Quiet) -> None:
    bench = quiet.bench
    bench.commit_one(bench.begin(), put(1, 1))
    bench.answer_oracle()
    tablet = quiet.core.cell.tablets[TabletId(1)]
    period_s = tablet.assignment.settings.dynamic_store_auto_flush_period / 1000
    number = tablet.active.number
    quiet.run(period_s - 5)
    assert tablet.active.number == number
    quiet.run(10)
    assert tablet.active.number == number + 1
