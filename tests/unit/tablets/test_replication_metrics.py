"""The metrics of a node whose log has copies: each has its value in the report."""

from typing import NamedTuple

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from dodona_replication.core.owner_report import report_of
from dodona_server.exposition import Metrics
from dodona_tablets.shell.cache_counts import CacheReport
from dodona_tablets.shell.object_counts import ObjectCounts
from dodona_tablets.shell.replication_metrics import REPLICATION_METRICS, ReplicationReport
from dodona_wire.cores.copies import ReplicaState
from unit.replication.owning import Owning


class CellReport(NamedTuple):
    chunk_misses: int


class Report(NamedTuple):
    replication: ReplicationReport
    cell: CellReport


CACHE = CacheReport(300, 4_000, 50, {"done": 6, "missing": 0, "damaged": 1, "failed": 2})
CELL = CellReport(7)


PLACES = [
    *(ReplicaState(f"http://{it}", "spare", it) for it in "abd"),
    ReplicaState("http://c:1", silent_us=7_000_000, reason="no answer"),
]


def scraped(owning: Owning) -> dict[str, float]:
    copies = replace(
        report_of(owning.owner, PLACES, owning.now),
        wanted_count=3,
        coordinator_silent_us=1_500_000,
        take_over_us=800_000,
    )
    calls = {"put": {"done": 4, "failed": 1}}
    report = Report(ReplicationReport(copies, ObjectCounts(calls, 1_000, 20), CACHE), CELL)
    text = Metrics("node", REPLICATION_METRICS, lambda: report).text("")[0].decode()
    return {
        " ".join([sample.name.removeprefix("dodona_node_"), *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dodona_node_")
    }


def test_the_state_of_the_copies_is_in_the_metrics() -> None:
    owning = Owning()
    owning.open()
    owning.held = {"b"}
    owning.append()
    owning.append()
    owning.wait(200)
    found = scraped(owning)
    assert found["replication_serving"] == 1
    assert found["replication_epoch"] == 1
    assert found["replication_take_over_seconds"] == 0.8
    assert found["replication_replicas member"] == 3
    assert found["replication_replicas spare"] == 1
    assert found["replication_replicas unknown"] == 1, "an address where no member is known to be"
    assert found["replication_copies_wanted"] == 3
    assert found["replication_copies_min"] == 2
    assert found["replication_set_changes_total joined"] == 0
    assert found["replication_lag_entries http://b"] == 2
    assert found["replication_lag_seconds http://b"] == 0.2
    assert found["replication_silent_seconds http://c:1"] == 7
    assert found["replication_waiting_entries"] == 2
    assert found["replication_coordinator_silent_seconds"] == 1.5
    assert found["object_store_calls_total put failed"] == 1
    assert found["object_store_uploaded_bytes_total"] == 1_000
    assert found["object_store_fetched_bytes_total"] == 20
    assert found["object_store_cached_bytes"] == 300
    assert found["chunk_cache_limit_bytes"] == 4_000
    assert found["chunk_cache_misses_total"] == 7
    assert found["chunk_cache_fetches_total damaged"] == 1
    assert found["chunk_cache_evicted_bytes_total"] == 50


def test_a_replica_has_one_sample_in_each_metric() -> None:
    """However often the set changes: the addresses are those of the settings."""
    owning = Owning()
    owning.open()
    names = [it for it in scraped(owning) if it.startswith("replication_silent_seconds")]
    assert len(names) == len(PLACES) + 1, "and the member without an address"
