"""Bulk loads in a whole cluster where nothing goes wrong, but for the order in which things happen.

Owns: the orders that seeds of the workload `loads` have shown to be wrong once, each by itself.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from dodona._core.loads.session import LoadSession
from dodona._core.loads.ticket import LoadTicket, Published
from dodona._core.protocol.steps import Calls, Pause, Protocol, Result, Step
from dodona._core.session import Session
from dodona._core.writing.senders import StagedBatch
from dodona.errors import CommitOutcomeUnknown, DodonaError, LoadEnded, Unavailable
from dodona_loadtest.workloads.loads import BulkLoads
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.data import LookupVersions
from dodona_wire.messages.loads import OpenLoad
from simulator.driver import Task
from simulator.faults import Options
from simulator.simulation import SECOND_US, Simulation

LEASE_MS = 1_000
TABLE = "//loads/bundles"
RUN_US_MAX = 60 * SECOND_US
SEEDS_MAX = 60
SHOWN = (
    "erased",
    "any",
    "absent",
    "there",
    "blind",
    "not blind",
    "loads left",
    "loads recovered",
    "loads skipped at once",
    "late tasks refused",
    "late batches refused",
    "plain loads closed",
    "loads refused: concurrent_append",
)
"""What runs of the workload count, and what its history has."""


def calm(options: Options) -> Options:
    return dataclasses.replace(
        options, patience_ms=10_000, call_timeout_us=5_000_000, acknowledgement="decided"
    )


class Calm(Simulation):
    """A cluster with the tables of the workload; faults never begin."""

    def __init__(self) -> None:
        super().__init__(1, 10, "loads", NodeCore, alter=calm)
        self.cluster.start()
        self._set_up()
        self.session: Session = self._client_sessions[0]
        self.loads: LoadSession = self.session.loads

    def begin(self, protocol: Protocol[Any]) -> Task:
        """Let it go on beside others."""
        return Task(self.cluster.clients[0], protocol)

    def run_it(self, protocol: Protocol[Result]) -> Result:
        """To its end. Raises what it raises."""
        ended: list[Result | DodonaError] = []

        def attend() -> Protocol[None]:
            try:
                ended.append((yield from protocol))
            except DodonaError as error:
                ended.append(error)

        self._run_until_done(attend(), RUN_US_MAX, "what was to end")
        (end,) = ended
        if isinstance(end, DodonaError):
            raise end
        return end

    def pass_time(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_us + duration_ms * 1000)

    def load(self, **given: Any) -> LoadTicket:
        return self.run_it(self.loads.begin([TABLE], lease_ms=LEASE_MS, **given))

    def stage(self, ticket: LoadTicket, *numbers: int) -> list[StagedBatch]:
        """Rows of these ids."""
        rows = [{"id": number, "mark": "new", "load": 1} for number in numbers]
        return self.run_it(self.loads.stage(ticket, TABLE, pa.RecordBatch.from_pylist(rows)))

    def publish(self, ticket: LoadTicket, staged: Sequence[StagedBatch]) -> Published:
        return self.run_it(self.loads.publish(ticket, staged))

    def marked(self) -> list[int]:
        """The ids of rows that a load wrote."""
        rows = self.run_it(self.session.select(TABLE))
        return [row["id"] for row in rows if row["mark"] == "new"]


class Gate:
    """Holds a protocol before its first step of some kind, until it is opened."""

    def __init__(self, is_it: Callable[[Step], bool]) -> None:
        self._is_it = is_it
        self.is_reached = self.is_open = False
        self.result: Any = None

    def hold(self, protocol: Protocol[Any]) -> Protocol[None]:
        try:
            step = next(protocol)
            while True:
                if not self.is_reached and self._is_it(step):
                    self.is_reached = True
                    while not self.is_open:
                        yield Pause(1)
                step = protocol.send((yield step))
        except StopIteration as end:
            self.result = end.value


def asks(kind: type[Any]) -> Callable[[Step], bool]:
    return lambda step: isinstance(step, Calls) and isinstance(step.requests[0][1], kind)


@pytest.fixture
def cluster() -> Calm:
    return Calm()


def test_a_task_may_bring_rows_by_several_calls(cluster: Calm) -> None:
    """Rows of the second call were taken for a repeat of the first, and lost."""
    ticket = cluster.load()
    staged = [*cluster.stage(ticket, 0, 1), *cluster.stage(ticket, 2, 3)]
    assert cluster.publish(ticket, staged).row_count == 4
    assert cluster.marked() == [0, 1, 2, 3]


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_repeated_publish_returns_the_first_commit_timestamp(
    cluster: Calm, is_finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells have nothing staged any more, or the load is over there: that was an error."""
    ticket = cluster.load()
    staged = cluster.stage(ticket, 0)
    with monkeypatch.context() as patch:
        if not is_finished:
            patch.setattr(LoadSession, "_finish", _do_nothing)
        first = cluster.publish(ticket, staged)
    again = cluster.publish(ticket, staged)
    assert again.timestamp == first.timestamp
    assert again.row_count == 1
    assert cluster.publish(ticket, staged).timestamp == first.timestamp


def _do_nothing(*_: Any) -> Protocol[None]:
    return
    yield


def test_a_repeated_publish_raises_outcome_unknown_if_no_record_can_be_read(
    cluster: Calm, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = cluster.load()
    staged = cluster.stage(ticket, 0)
    cluster.publish(ticket, staged)

    def find(*_: Any) -> Protocol[Any]:
        raise Unavailable("nobody answers")
        yield

    monkeypatch.setattr("dodona._core.loads.records.Records.find", find)
    with pytest.raises(CommitOutcomeUnknown, match=r"The outcome of load \d+ is unknown"):
        cluster.publish(ticket, staged)


def test_a_load_that_was_given_up_is_not_published(cluster: Calm) -> None:
    ticket = cluster.load()
    staged = cluster.stage(ticket, 0)
    assert cluster.run_it(cluster.loads.abort(ticket, "no more")) is None
    with pytest.raises(LoadEnded):
        cluster.publish(ticket, staged)
    assert cluster.marked() == []


def test_recovery_does_not_abort_a_load_that_is_just_beginning(cluster: Calm) -> None:
    """Its record was there before the cells had heard of it: whoever came between gave it up."""
    cluster.load()  # the system tables are there
    gate = Gate(asks(OpenLoad))
    begun = cluster.begin(gate.hold(cluster.loads.begin([TABLE], lease_ms=LEASE_MS)))
    cluster.pass_time(100)
    assert gate.is_reached
    assert cluster.run_it(cluster.loads.recover()) == []
    gate.is_open = True
    cluster.pass_time(100)
    assert begun.is_over
    assert cluster.publish(gate.result, cluster.stage(gate.result, 0)).row_count == 1


def test_a_load_that_can_not_be_opened_leaves_nothing(
    cluster: Calm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(*_: Any) -> Protocol[None]:
        raise Unavailable("nobody answers")
        yield

    cluster.load()
    monkeypatch.setattr("dodona._core.loads.records.Records.add", add)
    with pytest.raises(Unavailable):
        cluster.load()
    assert all(len(node.core.cell.loads.open) == 1 for node in cluster.cluster.nodes)
    assert len(cluster.run_it(cluster.loads.list_loads())) == 1


def test_a_publish_does_not_return_the_timestamp_of_the_finish_record(
    cluster: Calm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else finishes the load between two looks of whoever publishes it again."""
    ticket = cluster.load()
    staged = cluster.stage(ticket, 0)
    with monkeypatch.context() as patch:
        patch.setattr(LoadSession, "_finish", _do_nothing)
        first = cluster.publish(ticket, staged)
    gate = Gate(asks(LookupVersions))
    again = cluster.begin(gate.hold(cluster.loads.publish(ticket, staged)))
    cluster.pass_time(2 * LEASE_MS)
    assert gate.is_reached
    assert [it.outcome for it in cluster.run_it(cluster.loads.recover())] == ["rolled_forward"]
    gate.is_open = True
    cluster.pass_time(1_000)
    assert again.is_over
    assert gate.result.timestamp == first.timestamp


@pytest.mark.slow("many seeds")
def test_the_loads_workload_has_each_kind_and_each_end_of_a_load() -> None:
    """Of each kind of load there are some, and of each end."""
    counts: Counter[str] = Counter(dict.fromkeys(SHOWN, 0))
    for seed in range(SEEDS_MAX):
        run = Simulation(seed, 20, "loads", NodeCore)
        assert run.run().violations == []
        assert isinstance(run.workload, BulkLoads)
        counts.update(run.workload.counts)
        for t in [it for it in run.history.transactions if it.load and it.status == "ok"]:
            for kind in ("erased", t.presence, "blind" if t.is_blind else "not blind"):
                counts[kind] += kind != "erased" or bool(t.erased)
        if all(counts[kind] for kind in SHOWN):
            break
    assert [kind for kind in SHOWN if not counts[kind]] == []
