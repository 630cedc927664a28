"""One cluster for all pages, with gateways that ask for no tokens."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from documents import curl
from documents.page_runs import GATEWAY_PORT, MASTER_PORT
from documents.running import addresses_of
from dodona_local.launcher import LocalCluster


@pytest.fixture(scope="session")
def pages_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes and a gateway."""
    folder = tmp_path_factory.mktemp("pages")
    with LocalCluster(folder / "data", gateway_count=1, is_insecure=True) as running:
        yield running


@pytest.fixture
def addresses(pages_cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """What pages call the cluster, which has no tables: and none afterwards."""
    ports = [
        int(it.rpartition(":")[2]) for it in (pages_cluster.master_url, *pages_cluster.gateway_urls)
    ]
    with dodona.connect(pages_cluster.master_url) as db:
        yield addresses_of(MASTER_PORT, ports[0]) | addresses_of(GATEWAY_PORT, ports[1])
        for name in db.list("/"):
            if name != "sys":
                db.remove(f"//{name}", recursive=True)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs that pages start, as an installation has them."""
    folder = tmp_path_factory.mktemp("programs")
    for name, words in {"dodona": "-m dodona_local.cli ", "python": ""}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        path.chmod(0o755)
    (folder / "activate").touch()
    return folder


@pytest.fixture(scope="session")
def stand_in_curl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a curl of our own, for machines that have none."""
    folder = tmp_path_factory.mktemp("curl")
    path = folder / "curl"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{curl.__file__}" "$@"\n')
    path.chmod(0o755)
    return folder


@pytest.fixture
def folder(tmp_path: Path, programs: Path) -> Path:
    """Where a page's commands run: with an environment in `.venv`, as in a clone."""
    (tmp_path / ".venv").mkdir()
    shutil.copytree(programs, tmp_path / ".venv" / "bin")
    return tmp_path
