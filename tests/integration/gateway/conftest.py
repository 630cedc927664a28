"""One cluster with two open gateways, for all tests that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dodona_local.launcher import LocalCluster
from integration.gateway.rest import Rest


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes, and two gateways that ask for no tokens."""
    folder: Path = tmp_path_factory.mktemp("gateways")
    with LocalCluster(folder / "data", gateway_count=2, is_insecure=True) as running:
        yield running


@pytest.fixture
def rest(gateways: LocalCluster) -> Iterator[Rest]:
    """A caller of the first gateway."""
    with Rest(gateways.gateway_urls[0]) as caller:
        yield caller


@pytest.fixture
def other(gateways: LocalCluster) -> Iterator[Rest]:
    """A caller of the second gateway."""
    with Rest(gateways.gateway_urls[1]) as caller:
        yield caller
