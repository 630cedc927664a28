"""The folder of a cluster, and cells that are adopted without processes."""

import shutil
from pathlib import Path

import pytest

import dodona
from dodona.types import Timestamp
from dodona_local import adopting, etcd_member
from dodona_local.replicas import Replicas
from dodona_tablets.core.records import (
    WatermarkRaised,
)
from dodona_tablets.shell.log import CellLog
from unit.local.adopting.adoptions import SCHEMA, Cells


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster with two nodes."""
    path = tmp_path_factory.mktemp("made") / "data"
    with dodona.open(path) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
    log = CellLog.open(path / "node-1", 1 << 30)
    log.append([WatermarkRaised(Timestamp(2))])
    log.close()
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "data")


@pytest.fixture(autouse=True)
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    made = Cells()
    options = {"cluster": "local-1", "replicas": "", "etcd": "", "object_store": ""}
    monkeypatch.setattr(etcd_member, "missing_program", lambda: None)
    monkeypatch.setattr(adopting, "_processes", made.processes)
    monkeypatch.setattr(adopting, "adopt_cell", made.adopt)
    monkeypatch.setattr(Replicas, "node_options", lambda *_: options)
    return made
