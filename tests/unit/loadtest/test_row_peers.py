"""Every contender of a row, each once and small: whoever is not on this machine is left out."""

from pathlib import Path

import pytest

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.errors import ContenderMissing
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.row import Contender
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import rest_dodona, rest_postgres
from dodona_loadtest.peers.rest_caller import RestCaller
from dodona_loadtest.rows import ROWS
from dodona_loadtest.studies.gateway import Serve

CORES = choose_pinning("none").client
CALLERS = 4
CONTENDERS = {
    f"{row.name}: {contender.name}": contender
    for row in ROWS
    for contender in row.contenders
    if row.pinning is None and not contender.name.startswith("Redis")  # it has tests of its own
}
CONFLICTING = ("hot-rows", "one-row")


@pytest.mark.integration
@pytest.mark.parametrize(("name", "contender"), CONTENDERS.items(), ids=list(CONTENDERS))
def test_each_contender_is_measured_and_keeps_its_acknowledged_writes(
    open_folder: Path, name: str, contender: Contender
) -> None:
    """The client process looks for it after each measurement."""
    try:
        with (
            contender.start(open_folder) as running,
            ClientProcess(running.load, CORES, CALLERS) as client,
        ):
            client.measure(Order(1, 0.02, 0.1))
            sample = client.measure(Order(CALLERS, 0.02, 0.2))
    except ContenderMissing as missing:
        pytest.skip(str(missing))
    assert sample.operations > 0
    assert sample.latency_us_p99 >= sample.latency_us_p50 > 0
    assert sample.failures == 0 or name.startswith(CONFLICTING)
    assert running.version


@pytest.mark.integration
@pytest.mark.parametrize("serve", [rest_dodona.serve, rest_postgres.serve])
def test_rows_come_back_over_rest_as_they_went_in(open_folder: Path, serve: Serve) -> None:
    try:
        with (
            serve(open_folder) as (port, version),
            WorkerProcess(RestCaller(port), CORES) as callers,
        ):
            callers.call(RestCaller.fill)
            inserts = callers.call(RestCaller.insert, CALLERS, 1, 0.1)
            batches = callers.call(RestCaller.insert, 1, 100, 0.1)
            lookups = callers.call(RestCaller.look_up, CALLERS, 0.1)
    except ContenderMissing as missing:
        pytest.skip(str(missing))
    assert version
    assert min(inserts.operations, batches.operations, lookups.operations) > 0
