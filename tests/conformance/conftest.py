"""Fixtures of the conformance suite: a test runs against every back end unless it says which."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

from conformance.backends import Backend, Embedded, Processes, Simulated
from conformance.locking import LONG_MS
from conformance.tables import PLAIN, MakeTable, Schema, create_spread
from dodona._core.writing import early_locks
from dodona.client import Client

_table_numbers: Final = count(1)


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    backend = Processes(tmp_path_factory.mktemp("processes") / "data")
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    backend = Embedded(tmp_path_factory.mktemp("embedded") / "data")
    yield backend
    backend.close()


@pytest.fixture
def simulator() -> Backend:
    return Simulated()


@pytest.fixture(
    params=["embedded", "simulator", pytest.param("processes", marks=pytest.mark.integration)]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def db(backend: Backend) -> Client:
    return backend.db


@pytest.fixture
def other(backend: Backend) -> Client:
    """A client that shares nothing with `db`."""
    return backend.new_client()


@pytest.fixture
def new_path() -> str:
    """Where no table is yet."""
    return f"//conformance/table-{next(_table_numbers)}"


@pytest.fixture
def make_table(backend: Backend) -> MakeTable:
    def make(schema: Schema = PLAIN, **options: Any) -> str:
        path = f"//conformance/table-{next(_table_numbers)}"
        create_spread(backend, path, schema, **{"mount": True, **options})
        return path

    return make


@pytest.fixture
def long_leases(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early locks that last: a busy machine may stand still for longer than a lease. Virtual time
    does not."""
    if not isinstance(backend, Simulated):
        monkeypatch.setattr(early_locks, "LEASE_MS", LONG_MS)
