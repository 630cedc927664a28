"""What the simulated operator does to whole tables, and how it is judged."""

import pytest

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_loadtest.histories.recorder import Recorder
from dodona_tablets.core.mounting.mounting import Mounting
from dodona_tablets.core.node import NodeCore
from simulator import table_lifecycle
from simulator.driver import Task
from simulator.simulation import Simulation

PATH = "//copies/one"
END_US = 60_000_000


class Calm:
    """A bank without any fault, and one session."""

    def __init__(self) -> None:
        self.simulation = Simulation(4, 1, "bank", NodeCore)
        self.simulation.cluster.start()
        self.simulation._set_up()
        self.table = self.simulation.workload.tables[0]
        self.client, self.db = self.simulation._recorder(0)
        self.catalog = self.db.session.catalog

    def run(self, protocol: Protocol[None]) -> None:
        task = Task(self.client, protocol)
        world = self.simulation.world
        world.run_until(world.now_us + END_US)
        assert task.is_over

    def promises(self) -> set[Promise]:
        dump = self.simulation.cluster.dump()
        found = check(
            self.simulation.history, [it for it in dump if it.row.table == self.table.path]
        )
        return {violation.promise for violation in found}


@pytest.fixture
def calm() -> Calm:
    return Calm()


def transfer(calm: Calm, db: Recorder) -> Protocol[None]:
    for _ in range(5):
        yield from calm.simulation.workload.transact(db)


def test_a_copied_table_is_checked_as_a_snapshot_of_its_source(calm: Calm) -> None:
    copied = []

    def story() -> Protocol[None]:
        yield from transfer(calm, calm.db)
        yield from calm.catalog.unmount_table(calm.table.path)
        copied.append((yield from table_lifecycle.copy(calm.db, calm.table, PATH)))
        yield from calm.catalog.mount_table(calm.table.path)
        yield from transfer(calm, calm.db)

    calm.run(story())
    assert copied == [True]
    (look,) = [t for t in calm.simulation.history.transactions if t.scans]
    assert len(look.scans[0].reads) > 5
    assert calm.promises() == set()


def test_a_copy_that_lacks_a_row_is_seen(calm: Calm) -> None:
    def story() -> Protocol[None]:
        yield from calm.catalog.unmount_table(calm.table.path)
        before = yield from calm.catalog.get_table(calm.table.path)
        yield from calm.catalog.copy(calm.table.path, PATH, recursive=True)
        yield from calm.catalog.mount_table(PATH)
        yield from calm.db.session.erase_rows(PATH, [{"id": 1}], "sync")
        assert (yield from table_lifecycle._look(calm.db, calm.table, PATH, before))
        yield from calm.catalog.mount_table(calm.table.path)

    calm.run(story())
    assert calm.promises() == {"EXT"}


def test_a_copy_of_a_table_that_was_mounted_meanwhile_is_not_checked(calm: Calm) -> None:
    copied = []

    def story() -> Protocol[None]:
        yield from calm.catalog.unmount_table(calm.table.path)
        before = yield from calm.catalog.get_table(calm.table.path)
        yield from calm.catalog.copy(calm.table.path, PATH, recursive=True)
        yield from calm.catalog.mount_table(calm.table.path)
        yield from transfer(calm, calm.db)
        yield from calm.catalog.unmount_table(calm.table.path)
        copied.append((yield from table_lifecycle._look(calm.db, calm.table, PATH, before)))
        yield from calm.catalog.mount_table(calm.table.path)

    calm.run(story())
    assert copied == [False]
    assert calm.promises() == set()


def tried_out(calm: Calm, times: int) -> list[list[Violation] | None]:
    found = []

    def story() -> Protocol[None]:
        for _ in range(times):
            wrong = yield from table_lifecycle.try_out(calm.db, "//scratch/0")
            found.append(wrong)

    calm.run(story())
    return found


def test_a_recreated_table_has_its_own_rows_and_the_old_tablets_are_dropped(calm: Calm) -> None:
    assert tried_out(calm, 6) == [[]] * 6
    assert calm.simulation.cluster.strays() == []
    assert calm.simulation.cluster.dropped_count() >= 6


def test_data_that_a_removed_table_leaves_behind_is_detected(
    calm: Calm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mounting, "_drop", lambda *_: None)
    tried_out(calm, 1)
    left = calm.simulation.cluster.strays()
    assert left
    assert all(text.endswith("is nobody's") for text in left)


def test_rows_that_are_lost_or_anothers_are_seen() -> None:
    written = {1: ("a", True), 2: ("b", False), 3: ("c", True)}
    assert table_lifecycle._wrong("//t", written, {1: "a", 3: "c"}) == []
    assert table_lifecycle._wrong("//t", written, {1: "a", 2: "b", 3: "c"}) == []
    found = table_lifecycle._wrong("//t", written, {1: "a", 2: "c", 4: "a"})
    assert [(it.promise, it.text) for it in found] == [
        ("DURABILITY", "row 3 of //t is not there"),
        ("GHOST", "row 2 of //t is another's"),
        ("GHOST", "row 4 of //t is another's"),
    ]


def test_columns_in_another_order_are_the_same_columns(calm: Calm) -> None:
    orders = []

    def story() -> Protocol[None]:
        for _ in range(4):
            yield from calm.catalog.unmount_table(calm.table.path)
            yield from table_lifecycle.reorder(calm.db, calm.table)
            table = yield from calm.catalog.get_table(calm.table.path)
            orders.append(table.schema.value_names)
            yield from calm.catalog.mount_table(calm.table.path)
            yield from transfer(calm, calm.db)
            yield from calm.simulation.workload.audit(calm.db)

    calm.run(story())
    assert len(set(orders)) > 1
    assert calm.promises() == set()
    assert calm.simulation.workload.violations == []
