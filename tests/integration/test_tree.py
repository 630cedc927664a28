"""Tables' life, the tree and master transactions over REST, with real processes."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

import dodona
from dodona.errors import NodeLocked, TableNotMounted, TransactionNotFound
from dodona_local.launcher import LocalCluster
from suite.waiting import wait_until, with_enough_time

pytestmark = pytest.mark.integration

FOLDER = "//tree_test"
TABLE = f"{FOLDER}/t"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "any"},
]
ROWS: list[dict[str, Any]] = [{"id": 1, "value": [1, "a"]}, {"id": 200, "value": None}]
SHORT_MS = 1_000


@pytest.fixture
def table(db: dodona.Client) -> Iterator[dodona.Client]:
    db.create_table(TABLE, SCHEMA, pivot_keys=[[], [100]], mount=True, attributes={"x": {"y": 1}})
    db.insert_rows(TABLE, ROWS)
    yield db
    db.remove(FOLDER, recursive=True)


@pytest.mark.part("a table's life, with real processes")
def test_a_table_is_frozen_unmounted_resharded_altered_and_remounted(table: dodona.Client) -> None:
    table.freeze_table(TABLE)
    assert table.select(TABLE) == ROWS
    with pytest.raises(TableNotMounted):
        table.insert_rows(TABLE, ROWS)
    table.unfreeze_table(TABLE, 0, 0)
    table.insert_rows(TABLE, ROWS[:1])
    table.unmount_table(TABLE)
    table.reshard_table(TABLE, [[], [1], [2], [150]])
    table.alter_table(TABLE, [*SCHEMA, {"name": "note", "type": "utf8"}])
    table.mount_table(TABLE)
    assert table.select(TABLE, columns=["id", "value"]) == ROWS
    table.set(f"{TABLE}/@max_data_versions", 2)
    table.remount_table(TABLE)
    assert table.get_table(TABLE).settings.max_data_versions == 2


@pytest.mark.part("a table's life, with real processes")
def test_values_come_back_as_they_were(table: dodona.Client) -> None:
    value: Any = {"a": [None, True, -(2**63), 2**64 - 1, 0.1, "ü\n", {}], "": []}
    table.set(f"{TABLE}/@value", value)
    assert table.get(f"{TABLE}/@value") == value
    assert table.get(f"{TABLE}/@x") == {"y": 1}
    assert "value" in table.list(f"{TABLE}/@")


def test_a_master_transaction_is_pinged_over_the_network(table: dodona.Client) -> None:
    def hold(timeout_ms: int) -> None:
        with table.begin_master(timeout_ms) as outer, outer.begin(timeout_ms, "inner") as inner:
            inner.lock(FOLDER, "shared", "child")
            inner.create_directory(f"{FOLDER}/child")
            time.sleep(1.5 * timeout_ms / 1000)

    with_enough_time(hold, SHORT_MS, TransactionNotFound)
    assert table.exists(f"{FOLDER}/child")


def test_a_master_lock_is_released_soon_after_its_client_stops(
    table: dodona.Client, cluster: LocalCluster
) -> None:
    other = dodona.connect(cluster.master_url)
    tx = other.begin_master(SHORT_MS)
    tx.lock(TABLE)
    with pytest.raises(NodeLocked):
        table.set(f"{TABLE}/@x", 1)
    other._pinger.close()  # as a client does that stops for long

    def is_free() -> bool:
        try:
            table.set(f"{TABLE}/@x", 1)
        except NodeLocked:
            return False
        return True

    wait_until(is_free, pause_s=0.05)
    with pytest.raises(TransactionNotFound, match="no ping arrived in time"):
        tx.commit()
    other.close()
