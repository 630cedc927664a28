"""Held snapshots in whole clusters under faults: what is held is never refused, nor different.

The seeds' own faults, an operator who reshards the table, and retention as soon as it may be: old
versions go after seconds, and so do leases. Who holds a snapshot reads it again and again.
"""

import dataclasses
from collections import Counter

import pytest
from msgspec.structs import replace

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.reading.holding import Hold
from dodona._core.session import Session
from dodona.errors import DodonaError, SnapshotTooOld
from dodona.types import CellId
from dodona_loadtest.histories.recorder import Recorder
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.readers import Readers
from dodona_tablets.core.node import NodeCore
from dodona_wire.cores.fault_points import FaultAt
from simulator.driver import Task
from simulator.faults import Options
from simulator.simulation import SECOND_US, Simulation

SECONDS = 40
LEASE_MS = 4_000
SEEDS = 4
PLANTED_SEEDS_MAX = 20


def quick_core(cell: CellId, address: str, limits: CellLimits, fault_at: FaultAt) -> NodeCore:
    """Transactions live for three seconds, and nothing is kept for longer than it must be."""
    quick = replace(
        limits,
        transaction_life_s_max=3,
        client_clock_difference_s_max=3,
        forget_slack_s=1,
        clean_period_ms=300,
        reader_lease_ms_max=LEASE_MS,
        reader_renewal_ms_max=LEASE_MS,
    )
    return NodeCore(cell, address, quick, fault_at)


def alter(options: Options) -> Options:
    return dataclasses.replace(
        options,
        remount_us_mean=5_000_000,
        transaction_life_s_max=3,
        session_life_us_mean=0,
        patience_ms=1_000,
        client_skew_us_max=0,
    )


class Readings:
    """What readers of a run saw."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, SECONDS, "bank", quick_core, alter=alter)
        self.path = self.simulation.workload.tables[0].path
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._is_ending = False

    def run(self) -> None:
        it = self.simulation
        it.cluster.start()
        it._set_up()
        it._run_until_done(self._keep_little(), 30 * SECOND_US, "the set-up")
        it.cluster.schedule_faults()
        it.fault_injector.storm()
        for index in range(4):
            client, db = it._recorder(index)
            Task(client, it._use(db))
        for index in range(3):
            client, db = it._recorder(index)
            Task(client, self._read_long(db))
        for at, client in enumerate(it.cluster.clients):
            Task(client, self._renew(it._client_sessions[at]))
        Task(it.cluster.clients[0], it._operate(it._recorder(0)[1]))
        it.world.run_until(it.world.now_us + SECONDS * SECOND_US)

    def _keep_little(self) -> Protocol[None]:
        catalog = self.simulation._client_sessions[0].catalog
        for name in ("min_data_ttl", "max_data_ttl"):
            yield from catalog.set(f"{self.path}/@{name}", 0)
        yield from catalog.remount_table(self.path)

    def _renew(self, session: Session) -> Protocol[None]:
        """What a client's thread does."""
        while True:
            yield Pause(min(session.holds.wait_ms() or 50, 50))
            if session.holds.wait_ms() == 0:
                yield from session.holds.do_due()

    def _read_long(self, db: Recorder) -> Protocol[None]:
        while True:
            yield Pause(1 + db.random.randrange(1_000))
            try:
                hold = yield from db.session.hold_snapshot([self.path], lease_ms=LEASE_MS)
            except DodonaError:
                continue
            db.session.holds.add(hold)
            yield from self._read_again_and_again(db, hold)
            yield from db.session.release_hold(hold)
            yield Pause(LEASE_MS + 2_000)
            yield from self._read_once_more(db, hold)

    def _read_again_and_again(self, db: Recorder, hold: Hold) -> Protocol[None]:
        first = None
        for _ in range(db.random.randrange(1, 30)):
            yield Pause(1 + db.random.randrange(1_000))
            if not self._is_held(db, hold):
                self.counts["lost"] += 1
                return
            try:
                rows = yield from db.session.select(self.path, timestamp=hold.timestamp)
            except SnapshotTooOld as error:
                if self._is_held(db, hold):
                    self.violations.append(f"{hold.timestamp} is held and refused: {error}")
                continue
            except DodonaError:
                continue  # a cell is away, or a row is prepared
            self.counts["reads"] += 1
            found = sorted(tuple(sorted(row.items())) for row in rows)
            first = first or found
            if found != first and self._is_held(db, hold):
                self.violations.append(f"{hold.timestamp} is held and shows something else")

    def _read_once_more(self, db: Recorder, hold: Hold) -> Protocol[None]:
        """It was let go of: by now it has mostly gone."""
        try:
            yield from db.session.select(self.path, timestamp=hold.timestamp)
        except SnapshotTooOld:
            self.counts["gone after"] += 1
        except DodonaError:
            return

    def _is_held(self, db: Recorder, hold: Hold) -> bool:
        try:
            db.session.check_hold(hold)
        except SnapshotTooOld:
            return False
        return True


def readings_of(seed: int) -> Readings:
    readings = Readings(seed)
    readings.run()
    return readings


@pytest.mark.slow("many seeds")
def test_a_held_snapshot_is_never_refused_and_never_changes() -> None:
    runs = [readings_of(seed) for seed in range(SEEDS)]
    assert [it.violations for it in runs] == [[]] * SEEDS
    counts = sum((it.counts for it in runs), Counter())
    assert counts["reads"] > 30 * SEEDS
    assert counts["gone after"] > SEEDS, "what nobody holds goes soon"
    assert counts["lost"] < counts["reads"] / 10


@pytest.mark.slow("many seeds")
def test_a_cell_that_releases_snapshots_before_its_readers_renew_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Readers, "expect_renewals", lambda *_: None)
    assert any(readings_of(seed).violations for seed in range(PLANTED_SEEDS_MAX))
