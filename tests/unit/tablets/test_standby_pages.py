"""What a node that stands by answers: probes, its metrics, and a refusal of all else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import dodona
from dodona.errors import InvalidRequest
from dodona_replication.core.standby import StandbyReport
from dodona_server.lifecycle import HEALTH_PATHS, METRICS
from dodona_server.listener import Listener
from dodona_tablets.shell.settings import NodeSettings
from dodona_tablets.shell.standby_pages import StandbyPages
from dodona_wire.net.cluster_key import Admission, ClusterKey, MetricsKey

REPORT = StandbyReport(3, 1, 4, 250_000)
KEY, METRICS_KEY = "the-key-of-the-cluster", "the-key-of-metrics"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener("127.0.0.1", 0) as made:
        yield made


def get(listener: Listener, path: str, **headers: str) -> httpx.Response:
    url = f"http://127.0.0.1:{listener.port}{path}"
    return httpx.get(url, headers=headers, trust_env=False)


def samples(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {it.name: it.value for family in families for it in family.samples}


def test_a_node_that_stands_by_is_healthy_and_has_metrics(listener: Listener) -> None:
    """Its alert said that it is down: a scrape was refused."""
    assert get(listener, METRICS).status_code == 503
    listener.standby_pages = StandbyPages(7, Admission(), lambda: REPORT)
    for path in HEALTH_PATHS:
        assert get(listener, path).status_code == 200
    found = get(listener, METRICS)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/plain")
    assert 'cell="7"' in found.text
    named = samples(found.text)
    assert named["dodona_node_ready"] == named["dodona_node_standby"] == 1
    assert named["dodona_node_standby_logs"] == 3
    assert named["dodona_node_standby_logs_left_alone"] == 1
    assert named["dodona_node_standby_replicas"] == 4
    assert named["dodona_node_standby_late_seconds"] == 0.25
    assert "process_resident_memory_bytes" in named
    refused = get(listener, "/v1/statistics")
    assert (refused.status_code, "stands by for others" in refused.text) == (503, True)
    listener.standby_pages = None
    assert get(listener, METRICS).status_code == 503


def test_only_callers_with_a_key_read_the_metrics_if_the_cluster_has_one(
    listener: Listener,
) -> None:
    admission = Admission(ClusterKey(KEY), MetricsKey(METRICS_KEY))
    listener.standby_pages = StandbyPages(None, admission, lambda: REPORT)
    refused = get(listener, METRICS)
    assert refused.status_code == 401
    assert "cluster's key" in refused.text
    for shown in (ClusterKey(KEY).authorization(), f"Bearer {METRICS_KEY}"):
        assert get(listener, METRICS, Authorization=shown).status_code == 200
    assert get(listener, METRICS, Authorization=f"Bearer {METRICS_KEY}x").status_code == 401


def test_a_page_in_a_browser_reads_no_metrics(listener: Listener) -> None:
    listener.standby_pages = StandbyPages(None, Admission(is_open=True), lambda: REPORT)
    assert get(listener, METRICS, Origin="http://evil.example").status_code == 403


def test_a_client_that_connects_to_a_node_that_stands_by_hears_where_the_master_is() -> None:
    """It repeated its calls until its time was over, and named no role."""
    made: dict[str, Any] = {
        "cell": 7,
        "port": 1,
        "data_dir": Path("/none"),
        "master_url": "http://127.0.0.1:8500",
    }
    settings = NodeSettings(**made)
    with Listener("127.0.0.1", 0, headers=settings.answer_headers) as listener:
        listener.standby_pages = StandbyPages(7, Admission(), lambda: REPORT)
        url = f"http://127.0.0.1:{listener.port}"
        with pytest.raises(InvalidRequest, match="is a node and not the master") as caught:
            dodona.connect(url, timeout_ms=60_000)
        assert caught.value.attributes["master"] == "http://127.0.0.1:8500"
        assert get(listener, "/readyz").headers["server"].startswith("dodona/")
